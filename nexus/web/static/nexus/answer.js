// Answer a message without leaving the page: what was typed so far stays. Without script the links load the form.
const form = document.getElementById("say");

function answer(messageId, told) {
  form.elements.reply_to.value = messageId;
  form.elements.message_type.value = messageId ? "answer" : "message";
  document.getElementById("answered").textContent = told;
  document.getElementById("answering").hidden = !messageId;
  form.elements.content_markdown.focus();
}

if (form) document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-answer]");
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    answer(link.dataset.answer, link.dataset.told);
  }
  if (event.target.closest?.("[data-answer-none]")) answer("", "");
});
