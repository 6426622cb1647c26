// Times in the viewer's zone; the exact UTC stays in the title.
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const at = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

function span(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d`;
}

function show(element) {
  const moment = new Date(element.dateTime);
  const seconds = (Date.now() - moment) / 1000;
  const text =
    element.dataset.when === "ago" ? `${span(seconds)} ago`
    : element.dataset.when === "for" ? span(seconds)
    : element.dataset.when === "left" ? (seconds < 0 ? `${span(-seconds)} left` : "lease over")
    : element.dataset.when === "clock" ? clock.format(moment)
    : element.dataset.when === "day" ? day.format(moment)
    : at.format(moment);
  if (element.textContent !== text) element.textContent = text;
}

export function showTimes(root = document) {
  root.querySelectorAll("time[data-when]").forEach(show);
}

showTimes();
setInterval(() => document.hidden || document.querySelectorAll("time[data-when]:not([data-when=at])").forEach(show), 1000);
document.addEventListener("visibilitychange", () => showTimes());
