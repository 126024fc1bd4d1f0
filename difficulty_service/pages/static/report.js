// The review of a report: labels to check with their filters, copies, and the tray.

import { CardColumns } from "./card_columns.js";
import { CopyGroups } from "./copy_groups.js";
import { Closer } from "./dialog.js";
import { showKeys } from "./keys.js";
import { showMark } from "./marks.js";
import { byId, doubtInWords, readJson } from "./page.js";
import { Grid, look, Review } from "./review.js";
import { download, plural, StoredMarks } from "./stored_marks.js";

class Report {
  constructor(data) {
    this.data = data;
    this.cards = [...(byId("grid")?.children ?? [])];
    this.places = new Map(data.cards.map(({ id }, place) => [id, place]));
    const detailsOf = (id) => {
      const sample = data.cards[this.places.get(id)];  // not there where another page marked it
      return sample ? { given: data.names[sample.label], margin: sample.margin } : this.copies.detailsOf(id);
    };
    this.stored = new StoredMarks(data.key, data, detailsOf, () => this.paint());
    this.review = new Review(
      this.stored, (card) => this.sampleOf(card).id, (id) => this.cards[this.places.get(id)],
    );
    this.copies = new CopyGroups(data.copies, this.review);
    this.listenToTray();
    if (this.cards.length) this.startGrid();
    this.paint();
  }

  startGrid() {
    const { data } = this;
    this.cards.forEach((card, place) => {
      look(card).disabled = false;
      const { label, nearest, likely } = data.cards[place];
      // Not in the file, which would be larger, and attributes lose CR.
      card.dataset.given = data.names[label];
      card.dataset.nearest = nearest === label ? "" : data.names[nearest] ?? "";
      const shares = likely.flatMap((each, at) => (at % 2 ? [] : [[data.classes[each], likely[at + 1]]]));
      if (shares.length) card.dataset.likely = JSON.stringify(shares);
    });
    this.grid = new Grid(byId("grid"), this.review);
    this.columns = new CardColumns(data.columns, () => this.filter());
    this.closer = new Closer(this);
    byId("controls").hidden = false;
    if (window.matchMedia("(max-width: 560px)").matches) byId("controls").open = false;
    this.listen();
    this.filter();
  }

  sampleOf(card) { return this.data.cards[this.cards.indexOf(card)]; }

  listen() {
    byId("grid").addEventListener("click", (event) => {
      const card = event.target.closest(".look")?.parentElement;
      if (!card) return;
      this.grid.unselect();
      this.closer.open(card);
    });
    for (const id of ["cut", "filter-label", "filter-nearest"]) {
      byId(id)?.addEventListener("input", () => this.filter());
    }
    byId("reset").addEventListener("click", () => this.setFilter("", ""));
    byId("show-keys").addEventListener("click", showKeys);
    for (const link of document.querySelectorAll(".matrix a")) {
      link.addEventListener("click", () => this.setFilter(link.dataset.label, link.dataset.nearest));
    }
  }

  listenToTray() {
    byId("undo").addEventListener("click", () => {
      const card = this.review.undo();
      this.grid?.focus(card);
    });
    byId("clear").addEventListener("click", () => {
      if (!window.confirm(`Delete ${plural(this.stored.byId.size, "mark")}?`)) return;
      this.review.marks.past = [];
      this.stored.clear();
    });
    byId("download").addEventListener("click", () => download("marks.csv", this.stored.toCsv()));
  }

  paint() {
    this.cards.forEach((card, place) => showMark(card, this.stored.get(this.data.cards[place].id)));
    this.copies.paint();
    byId("tray").hidden = !this.stored.byId.size;
    byId("tray-text").textContent = this.stored.describe();
    byId("undo").disabled = !this.review.marks.past.length;
  }

  setFilter(label, nearest) {
    if (byId("cut")) byId("cut").value = 0;
    this.columns.reset();
    for (const [id, value] of [["filter-label", label], ["filter-nearest", nearest]]) {
      if (!byId(id)) continue;  // without classes to compare
      byId(id).value = value;
      // A class without a card on this page is no option.
      if (byId(id).value !== value) byId(id).value = "";
    }
    this.filter();
  }

  filter() {
    const step = Number(byId("cut")?.value ?? 0), cut = this.data.cuts?.[step] ?? -Infinity;
    const label = byId("filter-label")?.value ?? "", nearest = byId("filter-nearest")?.value ?? "";
    const { conditions } = this.columns;
    // What comes up among a part of the samples tells nothing about all.
    this.stored.order = label || nearest || conditions.length ? "" : this.data.order;
    this.cards.forEach((card, place) => {
      const sample = this.data.cards[place];
      // The steps are rounded to four decimals, as the doubts are.
      card.hidden = sample.doubt < cut - 1e-4 || (label !== "" && sample.label !== Number(label))
        || (nearest !== "" && sample.nearest !== Number(nearest))
        || !this.columns.fulfils(place, conditions);
      this.columns.caption(card, place, conditions);
    });
    const shown = this.grid.cards.length;
    byId("filtered").textContent = shown < this.cards.length ? `(${shown} shown)` : "";
    byId("no-match").hidden = shown > 0;
    if (this.data.cuts) this.showCut(step, cut);
  }

  showCut(step, cut) {
    for (const bar of byId("cut-bars").children) {
      bar.classList.toggle("off", Number(bar.dataset.low) < cut - 1e-3);
    }
    const count = this.data.counts[step], counted = plural(count, this.data.noun);
    const shown = doubtInWords(this.data.doubt, cut).replace(/^\w+ /, "");
    byId("cut-value").textContent = shown;
    byId("cut-count").textContent =
      `${counted}, ${(100 * count / this.data.total).toFixed(1)} % of all`;
    byId("cut").setAttribute("aria-valuetext", `${shown}: ${counted}`);
  }
}

if (byId("tray")) new Report(readJson("review-data"));
