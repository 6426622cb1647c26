// The timeline's keys and wheel. What they lead to are links of the page: nearer and farther, earlier and later.
import { go } from "./regions.js";

const WAYS = { "+": "nearer", "=": "nearer", "-": "farther", "\u2212": "farther", ArrowLeft: "earlier", ArrowRight: "later" };
const SETTLED = 200; // ms without a turn of the wheel, then the picture is fetched
const SHORTEST = 10_000, LONGEST = 92 * 86_400_000;

const middle = (mark) => {
  const box = mark.getBoundingClientRect();
  return box.left + box.width / 2;
};
const nearest = (marks, x) => marks.reduce((best, mark) => (!best || Math.abs(middle(mark) - x) < Math.abs(middle(best) - x) ? mark : best), null);
const inOrder = (row) => [...row.querySelectorAll("a")].sort((one, other) => middle(one) - middle(other));

// Where an arrow leads from a mark; from the picture itself, down, to the first mark.
function beside(chart, mark, key) {
  const rows = [...chart.querySelectorAll("[data-row]")].filter((row) => row.querySelector("a"));
  if (!mark) return key === "ArrowDown" && rows.length ? inOrder(rows[0])[0] : null;
  const own = inOrder(mark.closest("[data-row]"));
  const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
  if (step) return own[own.indexOf(mark) + step];
  const next = rows[rows.indexOf(mark.closest("[data-row]")) + (key === "ArrowDown" ? 1 : -1)];
  return next && nearest([...next.querySelectorAll("a")], middle(mark));
}

document.addEventListener("keydown", (event) => {
  // What a block held replaces the picture, and its card has the keys then.
  const chart = event.target.id === "chart-rows" ? document.getElementById("chart") : event.target.closest?.(".nx-chart");
  if (!chart || event.ctrlKey || event.metaKey || event.altKey) return;
  const mark = event.target.closest("[data-row] a");
  if (event.key.startsWith("Arrow") && (mark || event.key === "ArrowDown")) {
    const next = beside(chart, mark, event.key);
    if (next) next.focus();
    if (next || mark) event.preventDefault();
  } else if (event.key === "Escape" && mark) {
    chart.focus();
  } else if (WAYS[event.key]) {
    const way = document.getElementById(`way-${WAYS[event.key]}`);
    if (!way) return;
    event.preventDefault();
    go(way.href);
  }
});

let turned = 0;
let settle;

document.addEventListener("wheel", (event) => {
  const chart = event.target.closest?.("#chart-rows .nx-chart");
  if (!chart || !event.ctrlKey) return;
  event.preventDefault();
  turned += event.deltaY;
  clearTimeout(settle);
  const box = chart.getBoundingClientRect();
  const share = (event.clientX - box.left) / box.width;
  settle = setTimeout(() => {
    const [since, until] = [Date.parse(chart.dataset.since), Date.parse(chart.dataset.until)];
    const length = Math.min(LONGEST, Math.max(SHORTEST, (until - since) * 2 ** Math.max(-4, Math.min(4, turned / 100))));
    turned = 0;
    const begin = since + (until - since) * share - length * share;
    const url = new URL(location.href);
    url.searchParams.delete("window");
    url.searchParams.set("since", new Date(begin).toISOString());
    url.searchParams.set("until", new Date(begin + length).toISOString());
    go(url.href);
  }, SETTLED);
}, { passive: false });
