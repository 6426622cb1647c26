// One WebSocket per page. It tells that something happened (`nexus:event`); the page fetches what it shows.
// The cursor makes a return exact: what happened while the line was down is sent then.
const status = document.querySelector("[data-live]");
let cursor = Number(status?.dataset.cursor ?? 0);
const REFUSED = 4008; // the hub's code for a login or a key that holds no longer
let retry = 500;
let silence;

function say(state, text) {
  if (status.dataset.state === state) return;
  status.dataset.state = state;
  status.querySelector("span").textContent = text;
}

function connect() {
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  const socket = new WebSocket(`${scheme}//${location.host}${status.dataset.live}?cursor=${cursor}`);
  const listen = () => {
    clearTimeout(silence);
    silence = setTimeout(() => socket.close(), 60000); // heartbeats come far more often
  };
  socket.onopen = () => {
    retry = 500;
    listen();
    say("live", "Live");
    document.dispatchEvent(new CustomEvent("nexus:open"));
  };
  socket.onmessage = (message) => {
    listen();
    const said = JSON.parse(message.data);
    cursor = Math.max(cursor, said.cursor ?? 0);
    if (said.type === "event") document.dispatchEvent(new CustomEvent("nexus:event", { detail: said.event }));
  };
  socket.onclose = (event) => {
    clearTimeout(silence);
    say("lost", event.code === REFUSED ? "You are logged out" : "Connection lost, trying again…");
    setTimeout(connect, retry + Math.random() * 250);
    retry = Math.min(retry * 2, 10000);
  };
}

if (status) connect();
