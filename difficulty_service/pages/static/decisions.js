// The bar of decisions about the one sample that is shown, at the same place whatever is shown.

import { ClassChoice } from "./class_choice.js";
import { MARK_KINDS } from "./keys.js";
import { isSame } from "./marks.js";
import { byId } from "./page.js";
import { choicesOf } from "./review.js";

const percentOf = (share) => (share < 1 ? "< 1 %" : share > 99 ? "> 99 %" : `${share} %`);

export class DecisionBar {
  // `names` gives the classes; `decide`, `relabel` and `undo` do what a person chooses.
  constructor(bar, review, names, { decide, relabel, undo }) {
    Object.assign(this, { bar, review, box: byId("other") });
    bar.addEventListener("click", (event) => {
      const { decision } = event.target.closest("[data-decision]")?.dataset ?? {};
      if (!decision) return;
      event.preventDefault();  // no form is sent
      if (decision === "undo") undo();
      else decide(decision);
    });
    this.choice = new ClassChoice(this.box, names, relabel);
    bar.querySelector("[data-decision=undo]").hidden = false;
  }

  // Shows the classes of a card, and which decision is its mark.
  show(card) {
    const { bar, review, box } = this, { given, nearest } = card.dataset, choices = choicesOf(card);
    for (const { mark, classOfOne, needsClass } of MARK_KINDS) {
      const button = bar.querySelector(`[data-decision=${mark}]`);
      if (classOfOne) button.querySelector("bdi").textContent = card.dataset[classOfOne];
      if (needsClass) button.disabled = !nearest;
    }
    [...bar.querySelectorAll(".fit")].forEach((button, place) => {
      const [name = "", share = null] = choices[place] ?? [];
      button.disabled = !name;
      button.value = name;
      button.classList.toggle("given-class", name === given);
      button.querySelector("bdi").textContent = name;
      button.querySelector(".share").textContent = share === null ? "" : percentOf(share);
      button.querySelector("rect").setAttribute("width", `${share ?? 0}%`);
    });
    const mark = review.marks.store.get(review.idOf(card));
    for (const button of bar.querySelectorAll("[aria-pressed]")) {
      const isOn = mark !== null && isSame(mark, review.markFor(card, button.dataset.decision));
      button.setAttribute("aria-pressed", String(isOn));
    }
    const isListed = [nearest, ...choices.map(([name]) => name)].includes(mark?.label);
    box.value = mark?.label && !isListed ? mark.label : "";
  }
}
