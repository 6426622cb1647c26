// What the theme leaves to the mouse, made reachable by keys and readable to a screen reader; keys of lists and changed files.

const label = (selector, text) => document.querySelectorAll(selector).forEach((element) => {
  element.setAttribute("role", "button");
  element.tabIndex = 0;
  if (text) element.setAttribute("aria-label", text);
});
label("header [x-on\\:click], #header-inner span[x-on\\:click]", "Show or hide the navigation");
label("#nav-sidebar-inner span[x-on\\:click]", "Hide the navigation");
label("#nav-sidebar-inner h2[x-on\\:click]", "");
label("#nav-sidebar-inner div[x-on\\:click*=openUserLinks]", "");
label("#nav-sidebar-inner a[x-on\\:click], a[x-on\\:click*=filterOpen]", "");
document.getElementById("content")?.setAttribute("role", "main");
document.getElementById("content")?.setAttribute("tabindex", "-1"); // the link that skips the navigation leads to it
document.getElementById("search-input-command")?.setAttribute("aria-label", "Search everything");
document.querySelector("#nav-sidebar-inner a[href$='/admin/']:not(li a)")?.setAttribute("aria-label", "Nexus, home");
document.getElementById("searchbar-submit")?.setAttribute("aria-label", "Search");
document.getElementById("command-submit")?.setAttribute("aria-label", "Search");
document.querySelectorAll(".material-symbols-outlined").forEach((icon) => icon.hasAttribute("role") || icon.setAttribute("aria-hidden", "true"));

document.addEventListener("keydown", (event) => {
  const target = event.target;
  if ((event.key === "Enter" || event.key === " ") && target.matches?.("[role=button]:not(button, a[href])")) {
    event.preventDefault();
    target.click();
    return;
  }
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && target.matches?.("textarea") && target.form) {
    event.preventDefault();
    target.form.requestSubmit(target.form.querySelector("button.nx-primary") ?? target.form.querySelector("button:not([type=button])"));
    return;
  }
  if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey) {
    event.preventDefault(); // the theme listens too, but not from within a field
    if (target.matches?.("input, textarea, select")) window.dispatchEvent(new CustomEvent("opencommand"));
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || target.matches?.("input, textarea, select") || target.isContentEditable) return;
  const listed = [...document.querySelectorAll("#result_list tbody tr")].map((row) => row.querySelector("a")).filter(Boolean);
  const rows = [...listed, ...document.querySelectorAll(".nx-comment")].filter((row) => row.checkVisibility());
  if (rows.length && "jk".includes(event.key)) {
    const next = rows.indexOf(document.activeElement) + (event.key === "j" ? 1 : -1);
    rows[Math.max(0, Math.min(rows.length - 1, next))].focus();
    return;
  }
  const files = [...document.querySelectorAll(".nx-file > summary")];
  if (files.length && "np".includes(event.key)) {
    const at = files.indexOf(document.activeElement?.closest?.(".nx-file")?.firstElementChild);
    const next = files[Math.max(0, Math.min(files.length - 1, at + (event.key === "n" ? 1 : -1)))];
    next.focus({ preventScroll: true });
    next.parentElement.scrollIntoView();
    return;
  }
  if (event.key === "?") {
    document.getElementById("keys")?.showModal();
    return;
  }
  if (event.key === "/" && document.querySelector("input[name=q]")) {
    event.preventDefault();
    document.querySelector("input[name=q]").focus();
    return;
  }
  if (event.key === "r" && document.getElementById("reply")) {
    event.preventDefault();
    document.getElementById("reply").click();
  }
});

// An address that names a folded file, or a line in one, opens it.
const unfold = () => {
  const file = document.getElementById(location.hash.slice(1))?.closest(".nx-file");
  if (!file || file.open) return;
  file.open = true;
  document.getElementById(location.hash.slice(1)).scrollIntoView();
};
window.addEventListener("hashchange", unfold);
unfold();

// Chromium leaves it out now and then, after a link that was followed by a key.
if (document.activeElement === document.body) document.querySelector("[autofocus]")?.focus();
