// What people decide about groups of copies in a report, in the words and to the effect of the service.

import { isSame, labelOf } from "./marks.js";

export class CopyGroups {
  // `groups` are those of the page in their order, null where one is too large.
  constructor(groups, review) {
    const items = [...document.querySelectorAll(".copies > li")];
    Object.assign(this, { review, groups: [] });
    groups.forEach((group, place) => {
      if (group) this.offer(group, items[place]);
    });
  }

  offer(group, item) {
    const buttons = item.querySelector(".copy-actions");
    this.groups.push({ ...group, item, buttons: [...buttons.children] });
    buttons.hidden = false;
    buttons.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) this.review.marks.toggle(this.marksFor(group, button));
    });
  }

  // Gives all copies a label, or keeps the first one that has it and drops the others.
  marksFor({ ids, given, labels }, { name, dataset }) {
    const place = Number(dataset.place), first = given.indexOf(place);
    return ids.map((id, at) => {
      if (name === "one") return { id, mark: { mark: at === first ? "keep" : "drop", label: null } };
      return { id, mark: given[at] === place ? { mark: "keep", label: null } : { mark: "relabel", label: labels[place] } };
    });
  }

  // What is stored beside the mark of a copy; undefined where the sample is none.
  detailsOf(id) {
    for (const { ids, given, labels, margins } of this.groups) {
      const at = ids.indexOf(id);
      if (at >= 0) return { given: labels[given[at]], margin: margins[at] };
    }
    return undefined;
  }

  // Shows the marks on the pictures, and which decision they are.
  paint() {
    const { store } = this.review.marks;
    for (const group of this.groups) {
      const thumbs = group.item.querySelectorAll(".strip > li");
      group.pictured.forEach((at, place) => {
        const sign = thumbs[place].querySelector(".copy") ?? document.createElement("span");
        sign.className = "copy";
        sign.textContent = labelOf(store.get(group.ids[at]));
        if (!sign.textContent) sign.remove();
        else if (!sign.parentElement) thumbs[place].append(sign);
      });
      for (const button of group.buttons) {
        const isOn = this.marksFor(group, button).every(({ id, mark }) => isSame(mark, store.get(id)));
        button.setAttribute("aria-pressed", String(isOn));
      }
    }
  }
}
