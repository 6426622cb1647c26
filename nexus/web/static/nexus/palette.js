// Ctrl-K: the field has the keys as soon as it is shown. The theme gives them once, after 20 ms, shown or not.
// Enter opens the first hit, also one that is still on its way; the theme knows only what arrows chose.
const field = document.getElementById("search-input-command");
const results = document.getElementById("command-results");
let shown = ""; // what the results on the page answer
let asked = ""; // what the newest request asked for
let open = null; // how to open the first hit once it is there

const go = (link) => (open === "tab" ? window.open(link.href, "_blank") : location.assign(link.href));

function openFirst() {
  const link = results.querySelector("a[href]");
  if (link) go(link);
  open = null;
}

if (field) new IntersectionObserver((seen) => seen.at(-1).isIntersecting && field.focus()).observe(field);

field?.addEventListener("keydown", (event) => {
  if (event.key !== "Enter") {
    open = null; // who types on has not chosen yet
    return;
  }
  if (shown === field.value && results.querySelector("li.active")) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  if (!field.value.trim()) return;
  open = event.ctrlKey || event.metaKey ? "tab" : "here";
  if (shown === field.value) openFirst();
}, { capture: true });

document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.detail.elt === field) asked = field.value;
});
document.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target !== results) return;
  shown = asked;
  if (open && shown === field.value) openFirst();
});
