// The dialog that shows one doubtful image between typical images of both classes.

import { DecisionBar } from "./decisions.js";
import { listenForKeys, showKeys, togglePixels } from "./keys.js";
import { byId, doubtInWords } from "./page.js";
import { look } from "./review.js";

function typicalPictures(rows, name) {
  return rows.flatMap((row) => {
    const known = document.querySelector(`img[data-row="${row}"]`);
    if (!known) return [];
    const item = document.createElement("li"), picture = document.createElement("img");
    picture.src = known.src;
    picture.alt = `typical ${name}`;
    item.append(picture);
    return [item];
  });
}

export class Closer {
  constructor(report) {
    const dialog = byId("dialog");
    Object.assign(this, { report, dialog, card: null });
    this.bar = new DecisionBar(byId("decisions"), report.review, () => report.data.classes, {
      decide: (decision) => this.mark(decision),
      relabel: (name) => { if (report.review.relabel(this.card, name)) this.goOn(); },
      undo: () => this.show(report.review.undo()),
    });
    dialog.addEventListener("click", (event) => { if (event.target === dialog) this.close(); });
    listenForKeys(dialog, {
      move: (move) => this.step({ right: 1, left: -1 }[move] ?? 0),
      mark: (decision) => this.mark(decision),
      undo: () => this.show(report.review.undo()),
      search: () => byId("other").focus(),
      close: () => this.close(),
      help: showKeys,
      pixels: togglePixels,
    }, dialog);
    dialog.addEventListener("close", () => {
      // Its own button and the gesture of a phone close it without `close`.
      if (this.card) report.grid.focus(this.card);
    });
    byId("previous").addEventListener("click", () => this.step(-1));
    byId("next").addEventListener("click", () => this.step(1));
  }

  open(card) {
    this.show(card);
    this.dialog.showModal();
    this.awaitKey();
  }

  // Keys go to what has the focus, and no decision is chosen before one is made.
  awaitKey() { byId("dialog-title").focus(); }

  show(card) {
    const { report } = this;
    if (!card || card.hidden) return;
    this.card = card;
    report.grid.enter(card);
    const { data } = report, sample = report.sampleOf(card);
    const given = data.names[sample.label], { nearest } = card.dataset;
    const shown = look(card).firstElementChild.cloneNode(true);
    shown.removeAttribute("data-row");
    shown.removeAttribute("loading");
    byId("dialog-picture").replaceChildren(shown);
    byId("dialog-title").textContent = nearest ? `${given}, or ${nearest}?` : data.labelled ? `${given}?` : sample.id;
    const parts = data.labelled ? [sample.id] : [];
    if (sample.doubt !== null) parts.push(doubtInWords(data.doubt, sample.doubt));
    if (sample.difficulty !== null) parts.push(`difficulty ${sample.difficulty.toFixed(1)}`);
    if (sample.percentile === 1) parts.push(`the hardest of all ${data.noun}s`);
    else if (sample.percentile !== null) {
      // Rounded down, so that no image is harder than all of them.
      parts.push(`harder than ${(Math.floor(1000 * sample.percentile) / 10).toFixed(1)} % of all`);
    }
    parts.push(...report.columns.describe(report.cards.indexOf(card)));
    byId("dialog-text").textContent = parts.join(" · ");
    for (const [id, label] of [["typical-label", sample.label], ["typical-nearest", sample.nearest]]) {
      const pictures = typicalPictures(data.typical[label] || [], data.names[label]);
      byId(id).textContent = pictures.length ? `Typical ${data.names[label]}` : "";
      byId(`${id}-strip`).replaceChildren(...pictures);
    }
    this.bar.show(card);
    const { cards } = report.grid, place = cards.indexOf(card);
    byId("dialog-place").textContent = `${place + 1} of ${cards.length}`;
    byId("previous").disabled = place <= 0;
    byId("next").disabled = place >= cards.length - 1;
  }

  // Goes on by some images; false at an end of the list.
  step(by) {
    const { cards } = this.report.grid, next = cards[cards.indexOf(this.card) + by];
    this.show(next);
    return next !== undefined;
  }

  // Gives the focus at once to the card that the dialog shows: the browser gives it back to the card
  // that opened the dialog, and its event "close" comes after keys that are pressed meanwhile.
  close() {
    const { card } = this;
    this.card = null;
    this.dialog.close();
    this.report.grid.focus(card);
  }

  mark(decision) {
    if (this.report.review.decide([this.card], decision)) this.goOn();
  }

  goOn() {
    if (document.activeElement === byId("other")) this.awaitKey();
    if (!this.step(1)) this.close();
  }
}
