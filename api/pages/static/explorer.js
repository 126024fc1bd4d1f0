// What the pages do beyond links and forms: each part works on the pages that have its elements.

import { startFolders } from "./folders.js";
import { startReview } from "./review_page.js";
import { startUpload } from "./upload.js";

// On a phone the filters are closed until they are wanted. The style hides them until this runs, so
// that nothing below them moves when they close.
const filters = document.querySelector(".side-box");
if (filters && window.matchMedia("(max-width: 820px)").matches) filters.open = false;
document.documentElement.classList.add("scripts-run");

// A script sends the form at once; an empty condition need not be in the address.
document.addEventListener("htmx:config:request", (event) => {
  const { ctx } = event.detail;
  const body = ctx?.request?.body;
  if (ctx?.sourceElement?.id !== "filters" || !(body instanceof FormData)) return;
  for (const [name, value] of [...body]) if (value === "") body.delete(name);
});

// Whether a field of a form is not as the page came.
function isChanged({ options, selectedIndex, value, defaultValue, checked, defaultChecked }) {
  if (options) return selectedIndex !== Math.max(0, [...options].findIndex((each) => each.defaultSelected));
  return checked !== defaultChecked || value !== (defaultValue ?? value);
}

// What people change before the scripts run has the effect that it has later.
document.addEventListener("htmx:after:process", () => {
  for (const { elements } of document.forms) {
    [...elements].find(isChanged)?.dispatchEvent(new Event("change", { bubbles: true }));
  }
}, { once: true });

// What takes seconds says so, and is sent once; going back finds the button as it was.
document.addEventListener("submit", (event) => {
  const { busy } = event.target.dataset;
  const button = event.target.querySelector("button");
  if (!busy || !button) return;
  const text = button.textContent;
  button.disabled = true;
  button.textContent = busy;
  window.addEventListener("pageshow", () => Object.assign(button, { disabled: false, textContent: text }), { once: true });
});

startReview();
startUpload();
startFolders();
