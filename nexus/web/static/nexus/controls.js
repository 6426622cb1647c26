// Dialogs, copy buttons, selects that submit their form, and confirmations by typing.
document.addEventListener("click", async (event) => {
  const open = event.target.closest?.("[data-dialog]");
  if (open) document.getElementById(open.dataset.dialog)?.showModal();
  const close = event.target.closest?.("[data-close]");
  if (close) close.closest("dialog")?.close();
  const copy = event.target.closest?.("[data-copy]");
  if (copy) {
    const source = document.getElementById(copy.dataset.copy);
    const label = copy.textContent;
    try {
      await navigator.clipboard.writeText(source.textContent);
      copy.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(source);
      copy.textContent = "Selected: press Ctrl-C";
    }
    setTimeout(() => { copy.textContent = label; }, 2000);
  }
});

// A form goes once: a second click would send the message, or issue the key, again.
let sent = new WeakSet();
document.addEventListener("submit", (event) => {
  if (event.target.method !== "post" || event.defaultPrevented) return;
  if (sent.has(event.target)) event.preventDefault();
  sent.add(event.target);
});
window.addEventListener("pageshow", (event) => {
  if (event.persisted) sent = new WeakSet(); // back at it, one may send it anew
});

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
});

// Bounds are checked as one types, in the browser's own words.
document.addEventListener("input", (event) => {
  const field = event.target;
  if (!field.matches(".nx input[type=number]")) return;
  let note = field.nextElementSibling;
  if (!note?.matches(".nx-wrong")) {
    note = Object.assign(document.createElement("p"), { className: "nx-wrong" });
    note.setAttribute("role", "status");
    field.after(note);
  }
  field.setAttribute("aria-invalid", String(!field.validity.valid));
  note.textContent = field.validationMessage;
});

// <input data-typed="word"> keeps its form's submit disabled until the word is typed.
document.querySelectorAll("input[data-typed]").forEach((input) => {
  const button = input.form.querySelector("[data-armed]");
  const check = () => { button.disabled = input.value !== input.dataset.typed; };
  input.addEventListener("input", check);
  check();
});

// Fields that belong to one choice only are shown with it: [data-for="name=value other"].
const choose = () => document.querySelectorAll("[data-for]").forEach((element) => {
  const [name, values] = element.dataset.for.split("=");
  const chosen = element.closest("form").elements[name]?.value;
  element.hidden = !values.split(" ").includes(chosen);
});
document.addEventListener("change", choose);
choose();

// A form that a run continues by itself (retention): each answer starts the next, until done or left.
const again = document.querySelector("form[data-again]");
if (again) setTimeout(() => again.requestSubmit(), 300);

// <input data-narrows="id"> shows the entries of a list that contain what is typed; Enter follows the first.
document.querySelectorAll("[data-narrows]").forEach((input) => {
  const entries = [...document.getElementById(input.dataset.narrows).children];
  input.hidden = false;
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/);
    entries.forEach((entry) => { entry.hidden = !words.every((word) => entry.textContent.toLowerCase().includes(word)); });
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") entries.find((entry) => !entry.hidden)?.querySelector("a").click();
  });
});

// A menu closes by Escape and by a click beside it.
document.querySelectorAll("[data-menu]").forEach((menu) => {
  menu.addEventListener("toggle", () => menu.open && menu.querySelector("input")?.focus());
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  document.addEventListener("click", (event) => { if (!menu.contains(event.target)) menu.open = false; });
});
