// An action that asks for something, or asks once more, opens its form over the page: what one looked at stays.
// Without script the button leads to the form's own page.
document.addEventListener("submit", async (event) => {
  const { target: form, submitter: button } = event;
  if (!form.matches("form[action$='/act/']") || form.elements.asked || !button?.textContent.trim().endsWith("…")) return;
  event.preventDefault();
  const fields = new FormData(form, button);
  fields.delete("csrfmiddlewaretoken");
  const url = `${form.action}?${new URLSearchParams(fields)}`;
  try {
    const response = await fetch(url, { headers: { "X-Requested-With": "fetch" } });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    if (response.redirected || !response.ok) throw new Error("another page");
    open(page.querySelector("form.nx-form"), page.querySelector("h1")?.textContent ?? button.textContent, button);
  } catch { location.href = url; }
});

function open(form, title, button) {
  const dialog = Object.assign(document.createElement("dialog"), { className: "nx nx-dialog" });
  const heading = Object.assign(document.createElement("h2"), { id: "act-title", textContent: title.trim() });
  dialog.setAttribute("aria-labelledby", heading.id);
  dialog.append(heading);
  put(dialog, form);
  dialog.addEventListener("close", () => {
    dialog.remove();
    document.getElementById(button.id)?.focus(); // the page may have been exchanged meanwhile
  });
  document.body.append(dialog);
  dialog.showModal();
  focus(form);
}

function put(dialog, form) {
  dialog.querySelector("form")?.remove();
  form.classList.remove("nx-card");
  form.querySelector("a[data-leave]").addEventListener("click", (event) => { event.preventDefault(); dialog.close(); });
  form.addEventListener("submit", (event) => { event.preventDefault(); send(dialog, form, event.submitter); });
  dialog.append(form);
}

function focus(form) {
  const wrong = form.querySelector("[aria-invalid=true]");
  (wrong ?? form.querySelector("input:not([type=hidden]), textarea, select"))?.focus();
}

// What is refused is shown in the dialog; what was done, on the page below it.
async function send(dialog, form, button) {
  const body = new URLSearchParams(new FormData(form, button));
  button.disabled = true;
  try {
    const response = await fetch(form.action, { method: "POST", body, redirect: "manual" });
    if (response.type === "opaqueredirect") return go(new URL(form.elements.next.value, location.href));
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const again = page.querySelector("form.nx-form");
    put(dialog, again);
    focus(again);
  } catch { // another page, or no answer: the browser shows it
    form.append(Object.assign(document.createElement("input"), { type: "hidden", name: button.name, value: button.value }));
    form.submit();
  }
}

function go(next) {
  const here = next.pathname === location.pathname && next.search === location.search;
  location.href = next;
  if (here) location.reload();
}
