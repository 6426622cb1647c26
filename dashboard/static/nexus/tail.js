// The live tail: new rows are fetched after the newest one shown, so none is missed and none comes twice.
// They come on top; with [data-tail-end] at the end, which a [data-stick] around it stays at, once it is there.
import { showTimes } from "./times.js";

const log = document.querySelector("[data-tail]");
const KEPT = 300; // rows on the page, so that an hour of tailing does not grow it

if (log) {
  const pause = document.getElementById("pause");
  const count = document.getElementById("waiting");
  let after = Number(log.dataset.tail);
  let running = false;
  let wanted = false;
  let paused = false;
  let unseen = 0;

  const atEnd = "tailEnd" in log.dataset;
  const pane = log.closest("[data-stick]");
  const isAtEnd = () => pane.scrollHeight - pane.scrollTop - pane.clientHeight < 40;
  let sticking = !location.hash;
  if (pane) {
    pane.addEventListener("scroll", () => { sticking = isAtEnd(); });
    // The theme shows the page after this has run, and rows grow with their fonts.
    new ResizeObserver(() => { if (sticking) pane.scrollTop = pane.scrollHeight; }).observe(log);
  }

  const tell = () => { if (count) count.textContent = paused && unseen ? `${unseen} new` : ""; };

  async function fetchNewer() {
    wanted = true;
    if (running || paused) return;
    running = true;
    while (wanted && !paused) {
      wanted = false;
      const url = new URL(log.dataset.tailSource, location.href);
      url.searchParams.set("after", after);
      try {
        const response = await fetch(url);
        if (!response.ok) throw new Error(response.statusText);
        const page = new DOMParser().parseFromString(await response.text(), "text/html");
        const list = page.querySelector("[data-upto]");
        const rows = [...list.children];
        if (pane) sticking = isAtEnd();
        log[atEnd ? "append" : "prepend"](...rows);
        rows.forEach((row) => showTimes(row));
        while (log.children.length > KEPT) log[atEnd ? "firstElementChild" : "lastElementChild"].remove();
        if (Number(list.dataset.upto) > after && list.dataset.more) wanted = true;
        after = Math.max(after, Number(list.dataset.upto));
      } catch { wanted = true; }
      await new Promise((done) => setTimeout(done, 1000));
    }
    running = false;
  }

  document.addEventListener("nexus:event", () => { unseen += 1; tell(); fetchNewer(); });
  document.addEventListener("nexus:open", fetchNewer);
  pause?.addEventListener("click", () => {
    paused = !paused;
    unseen = 0;
    pause.setAttribute("aria-pressed", String(paused));
    pause.querySelector("span:last-child").textContent = paused ? "Resume" : "Pause";
    tell();
    if (!paused) fetchNewer();
  });
}
