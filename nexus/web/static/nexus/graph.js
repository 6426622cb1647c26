// What is pointed at, or has the focus, stands out in the graph with what it is connected to.
function light(agent) {
  const map = document.querySelector(".nx-map");
  if (!map) return;
  const near = new Set([agent]);
  map.toggleAttribute("data-lit", agent !== undefined);
  map.querySelectorAll("[data-from]").forEach((line) => {
    const touches = [line.dataset.from, line.dataset.to].includes(agent);
    line.classList.toggle("lit", touches);
    if (touches) near.add(line.dataset.from).add(line.dataset.to);
  });
  map.querySelectorAll("[data-agent]").forEach((node) => node.classList.toggle("lit", near.has(node.dataset.agent)));
}

["pointerover", "focusin"].forEach((kind) => {
  document.addEventListener(kind, (event) => light(event.target.closest?.(".nx-graph [data-agent]")?.dataset.agent));
});
