// The live tail: new rows are fetched after the newest one shown, so none is missed and none comes twice.
// They come at the end, which a [data-stick] around it stays at, once it is there.
import { showTimes } from "./times.js";

const log = document.querySelector("[data-tail]");
const KEPT = 300; // rows on the page, so that an hour of tailing does not grow it

if (log) {
  let after = Number(log.dataset.tail);
  let running = false;
  let wanted = false;

  const pane = log.closest("[data-stick]");
  const isAtEnd = () => pane.scrollHeight - pane.scrollTop - pane.clientHeight < 40;
  let sticking = !location.hash;
  if (pane) {
    pane.addEventListener("scroll", () => { sticking = isAtEnd(); });
    // The theme shows the page after this has run, and rows grow with their fonts.
    const grown = new ResizeObserver(() => { if (sticking) pane.scrollTop = pane.scrollHeight; });
    for (const child of pane.children) grown.observe(child);
  }

  async function fetchNewer() {
    wanted = true;
    if (running) return;
    running = true;
    while (wanted) {
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
        log.append(...rows);
        rows.forEach((row) => showTimes(row));
        if (rows.length) document.dispatchEvent(new CustomEvent("nexus:tail"));
        while (log.children.length > KEPT) log.firstElementChild.remove();
        if (Number(list.dataset.upto) > after && list.dataset.more) wanted = true;
        after = Math.max(after, Number(list.dataset.upto));
      } catch { wanted = true; }
      await new Promise((done) => setTimeout(done, 1000));
    }
    running = false;
  }

  document.addEventListener("nexus:event", fetchNewer);
  document.addEventListener("nexus:open", fetchNewer);
}
