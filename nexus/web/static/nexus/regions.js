// A live page is its own source: after events it is fetched again and its [data-region] elements are exchanged.
// What is shown once (a key) names another page with [data-source] for the regions that it shares with it.
// However many events come, that is one request at a time and at most one in two seconds.
import { showTimes } from "./times.js";

const PAUSE = 2000;
let running = false;
let wanted = false;

const source = () => document.querySelector("[data-source]")?.dataset.source ?? location.href;

const busy = (region) =>
  region.contains(document.activeElement) && document.activeElement.matches("input, select, textarea")
  || region.querySelector("input[type=checkbox]:checked") // what one has chosen is not taken away
  || region.contains(document.getSelection()?.anchorNode) && !document.getSelection().isCollapsed;

// What is exchanged between the press of a button and its release is not clicked: that is waited for.
let pressed = false;
["pointerdown", "pointermove", "pointerup", "pointercancel"].forEach((kind) => {
  document.addEventListener(kind, (event) => { pressed = event.buttons > 0; });
});

// A form's token is another one in each answer, and no reason to exchange what one looks at.
const picture = (region) => region.innerHTML.replace(/("csrfmiddlewaretoken" value=")[^"]*/g, "$1");
const shown = new WeakMap(); // by region, the picture that it was exchanged for last

const scrolled = (region) => [...region.querySelectorAll("[id]")].filter((part) => part.scrollTop || part.scrollLeft);

function exchange(region, fresh) {
  const coming = picture(fresh);
  if (shown.get(region) === coming) return;
  shown.set(region, coming);
  const focused = region.contains(document.activeElement) ? document.activeElement : null;
  const unfolds = focused?.matches("summary") && focused.parentElement.id;
  const key = unfolds ? `#${CSS.escape(unfolds)} > summary` : focused?.id ? `#${CSS.escape(focused.id)}` : focused?.getAttribute("href") ? `[href="${CSS.escape(focused.getAttribute("href"))}"]` : null;
  const open = [...region.querySelectorAll("details[open][id]")].map((details) => details.id);
  const scroll = [region, ...scrolled(region)].map((part) => [part.id, part.scrollLeft, part.scrollTop]);
  const place = window.scrollY;
  region.replaceChildren(...fresh.childNodes);
  queueMicrotask(() => window.scrollTo({ top: place, behavior: "instant" })); // Alpine, which begins with the new rows, leaves the page at its top
  showTimes(region);
  const rows = region.querySelectorAll("tr input.action-select");
  if (rows.length) window.Actions?.(rows, { parent: region.closest(".result-list-wrapper") }); // the admin's own script knows the rows that the page began with
  open.forEach((id) => region.querySelector(`#${CSS.escape(id)}`)?.setAttribute("open", ""));
  scroll.forEach(([id, left, top]) => document.getElementById(id)?.scrollTo({ left, top, behavior: "instant" }));
  if (focused === region) region.focus({ preventScroll: true });
  else if (key) region.querySelector(key)?.focus({ preventScroll: true });
}

async function load(url, only) {
  const here = location.href;
  const response = await fetch(url, { headers: { "X-Requested-With": "fetch" } });
  if (!response.ok) throw new Error(response.statusText);
  if (response.redirected) throw new Error("another page"); // the login's, once one is logged out
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  while (pressed) await new Promise((done) => setTimeout(done, 50));
  if (here !== location.href) return; // the person went on meanwhile: this is the picture of another place
  for (const region of document.querySelectorAll("[data-region]")) {
    const fresh = page.getElementById(region.id);
    if (fresh && (only ? only.includes(region.id) : !busy(region))) exchange(region, fresh);
  }
}

async function refresh() {
  wanted = true;
  if (running || document.hidden) return;
  running = true;
  while (wanted && !document.hidden) {
    wanted = false;
    try { await load(source()); } catch { /* the status line tells; the next event tries again */ }
    await new Promise((done) => setTimeout(done, PAUSE));
  }
  running = false;
}

if (document.querySelector("[data-region]")) {
  document.addEventListener("nexus:event", refresh);
  document.addEventListener("nexus:open", refresh); // what came between the page and the line
  document.addEventListener("visibilitychange", () => wanted && refresh());
  // Presence and leases change by time alone; [data-poll] waits for what leaves no event.
  setInterval(() => document.hidden || refresh(), document.querySelector("[data-poll]") ? 2000 : 30000);
}

// Links with data-swap fill one region, or several, instead of loading a page; without script they are plain links.
document.addEventListener("click", async (event) => {
  const link = event.target.closest?.("a[data-swap]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  await follow(link);
});

// Another picture of the same page: every region of it is exchanged.
export async function go(url) {
  history.pushState({}, "", url);
  try { await load(location.href); } catch { location.href = url; }
}

let followed = null; // the link that filled a region last, and which

async function follow(link) {
  const url = link.href.baseVal !== undefined ? new URL(link.href.baseVal, location.href).href : link.href;
  history.pushState({}, "", url);
  const mark = link.dataset.mark;
  if (mark) document.querySelectorAll(`[data-mark="${mark}"][aria-current]`).forEach((other) => other.removeAttribute("aria-current"));
  if (mark) link.setAttribute("aria-current", "true");
  const regions = link.dataset.swap.split(" ");
  followed = { id: link.id, region: regions[0] };
  try { await load(url, regions); } catch { location.href = url; return; }
  arrive(document.getElementById(regions[0]), link, document.getElementById(new URL(url).hash.slice(1)));
}

// Where one looks after a swap: at the place the address names, else at the top of what was filled.
function arrive(region, link, named) {
  region.scrollTop = 0;
  if (named) named.focus();
  else {
    if (!link.checkVisibility()) region.focus({ preventScroll: true }); // a narrow screen shows it in the link's place
    if (region.getBoundingClientRect().top < 0) region.scrollIntoView();
  }
}

window.addEventListener("popstate", async () => {
  try { await load(location.href); } catch { location.reload(); return; }
  const region = document.getElementById(followed?.region);
  if (region && !region.checkVisibility()) document.getElementById(followed.id)?.focus();
});
