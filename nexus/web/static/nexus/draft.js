// What an agent is just writing, at the end of its transcript: told over a WebSocket, replaced by its entry.
// It stays until the tail has that entry, so that nothing flickers.
const box = document.querySelector("[data-draft]");
const LONGEST_PAUSE = 10_000;

if (box) {
  const text = box.querySelector("[data-text]"), used = box.querySelector("[data-used]");
  let after = box.dataset.after;
  let pause = 500;
  let over = false;
  let position; // of the entry that is being written
  let replaced = false; // by that entry, which may not be on the page yet

  const empty = () => { text.textContent = ""; used.textContent = ""; box.hidden = true; };
  const settle = () => { if (replaced && document.getElementById(`e-${position}`)) empty(); };
  document.addEventListener("nexus:tail", settle);

  function hear(said) {
    after = said.after ?? after;
    if (said.type === "draft") {
      const { offset, text: piece, input_tokens: taken, output_tokens: made } = said.draft;
      if (offset === 0) text.textContent = "";
      text.append(piece);
      position = said.draft.position;
      replaced = false;
      used.textContent = taken || made ? `${taken} + ${made} tokens so far` : "";
      box.hidden = false;
    } else if (said.type === "entry") {
      replaced = true;
      settle();
    } else if (said.type === "state") {
      over = said.state.ended;
      if (!said.state.running && !replaced) empty(); // it was interrupted, say
    }
  }

  function connect() {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(`${scheme}//${location.host}${box.dataset.draft}?after=${encodeURIComponent(after)}`);
    socket.onopen = () => { pause = 500; };
    socket.onmessage = (message) => hear(JSON.parse(message.data));
    socket.onclose = () => {
      empty();
      if (over) return;
      setTimeout(connect, pause + Math.random() * 250);
      pause = Math.min(pause * 2, LONGEST_PAUSE);
    };
  }

  connect();
}
