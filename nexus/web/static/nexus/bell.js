// The bell on every page: how many agents stand still until a person answers. The title tells it to another tab.
const bell = document.querySelector("[data-bell]");
const types = bell?.dataset.types.split(" ") ?? [];
const title = document.title;

function show(waiting) {
  const before = Number(bell.querySelector("[data-waiting]").textContent);
  bell.querySelector("[data-waiting]").textContent = String(waiting);
  bell.hidden = waiting === 0;
  document.querySelectorAll("link[rel=icon]").forEach((icon) => {
    icon.dataset.quiet ??= icon.href;
    icon.href = waiting ? bell.dataset.icon : icon.dataset.quiet;
  });
  document.title = waiting ? `(${waiting}) ${title}` : title;
  if (waiting > before && !matchMedia("(prefers-reduced-motion: reduce)").matches) {
    bell.animate([{ rotate: "0deg" }, { rotate: "12deg" }, { rotate: "-12deg" }, { rotate: "0deg" }], { duration: 250, iterations: 3 });
  }
}

async function count() {
  try {
    const response = await fetch(bell.dataset.bell, { headers: { "X-Requested-With": "fetch" } });
    if (response.ok && !response.redirected) show((await response.json()).waiting);
  } catch { /* the status line tells; the next event tries again */ }
}

if (bell) {
  show(Number(bell.querySelector("[data-waiting]").textContent));
  document.addEventListener("nexus:event", (event) => types.includes(event.detail.type) && count());
  document.addEventListener("nexus:open", count); // what came between the page and the line
}
