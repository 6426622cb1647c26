// Comments beside a diff: a line's number opens the form under the line, with the mouse or with c; Shift takes lines up to it.
const form = document.getElementById("comment-form");
let first = null;

const about = (row, more) => {
  if (!more || first?.dataset.file !== row.dataset.file || first.dataset.side !== row.dataset.side) first = row;
  const lines = [first, row].map((each) => Number(each.dataset.line)).sort((a, b) => a - b);
  form.elements.path.selectedIndex = Number(row.dataset.file);
  form.elements.side.value = row.dataset.side;
  [form.elements.line.value, form.elements.last_line.value] = lines;
  row.append(form);
  form.elements.text.focus({ preventScroll: true });
  form.scrollIntoView({ block: "nearest" });
};

if (form) {
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-comment]")) {
      event.preventDefault();
      form.elements.text.focus();
      return;
    }
    const row = event.target.closest(".nx-diff [data-line] > a")?.parentElement;
    if (!row || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    history.replaceState({}, "", `#${row.id}`);
    about(row, event.shiftKey);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && form.contains(event.target)) {
      document.querySelector("#comments").append(form);
      first = null;
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches?.("input, textarea, select")) return;
    if (event.key === "c") {
      event.preventDefault();
      const row = document.querySelector(".nx-diff [data-line]:target") ?? document.activeElement?.closest(".nx-diff [data-line]");
      if (row) return about(row, false);
      const file = document.activeElement?.closest(".nx-file");
      if (file) form.elements.path.selectedIndex = Number(file.id.replace("file-", ""));
      form.elements.text.focus();
    } else if (event.key === "a") {
      document.getElementById("approve")?.focus();
    } else if (event.key === "s") {
      document.getElementById("send-comments")?.focus();
    }
  });
}
