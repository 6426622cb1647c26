// Subscribe this browser to notices: its own push service gets them, whether or not a tab is open.
const button = document.querySelector("[data-push]");

function bytes(text) {
  const padded = text.replace(/-/g, "+").replace(/_/g, "/");
  return Uint8Array.from(atob(padded), (letter) => letter.charCodeAt(0));
}

async function subscribe() {
  const said = document.querySelector("[data-push-said]");
  try {
    if ((await Notification.requestPermission()) !== "granted") throw new Error("The browser does not allow it.");
    await navigator.serviceWorker.register(button.dataset.worker);
    const worker = await navigator.serviceWorker.getRegistration(button.dataset.worker);
    const options = { userVisibleOnly: true, applicationServerKey: bytes(button.dataset.push) };
    const form = document.getElementById("notice-form");
    form.elements.subscription.value = JSON.stringify(await worker.pushManager.subscribe(options));
    form.elements.url.value = "";
    form.requestSubmit();
  } catch (error) {
    said.textContent = `This browser was not added: ${error.message}`;
  }
}

if (button && "serviceWorker" in navigator && "PushManager" in window) {
  button.hidden = false;
  button.addEventListener("click", subscribe);
}
