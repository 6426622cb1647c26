// What an action did stays in view until one closes it or goes on. A screen reader is told what is put into a region
// after the page was read, so the messages leave it and come back.
const toasts = document.querySelector("[data-toasts]");

if (toasts) {
  const entries = [...toasts.children];
  entries.forEach((entry) => {
    const close = Object.assign(document.createElement("button"), { type: "button", className: "nx-close", textContent: "×" });
    close.setAttribute("aria-label", "Close this message");
    close.addEventListener("click", () => entry.remove());
    entry.append(close);
  });
  toasts.replaceChildren();
  setTimeout(() => toasts.replaceChildren(...entries), 100);
}
