// Whether it is worth to check more labels, by the share of wrong ones below which a person stops.

import { byId, storage } from "./report/page.js";

const KEY = "difficulty-stop-below";

export function showWorth() {
  const offer = byId("further"), choice = byId("stop-below");
  if (!offer) return;
  const chosen = storage.get(KEY);
  if ([...choice.options].some(({ value }) => value === chosen)) choice.value = chosen;
  offer.classList.toggle("enough", Number(offer.dataset.share) < Number(choice.value));
}

export function listenForChoice() {
  document.addEventListener("change", ({ target }) => {
    if (target.id !== "stop-below") return;
    storage.set(KEY, target.value);
    showWorth();
  });
  document.addEventListener("htmx:afterSwap", showWorth);
  showWorth();
}
