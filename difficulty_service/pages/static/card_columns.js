// Columns beside the scores: filters of the cards of a report, and what captions say of them.

import { byId } from "./page.js";

const DAY_IN_SECONDS = 86400;

export class CardColumns {
  // Calls `onChange` when a filter has changed.
  constructor(columns, onChange) {
    this.columns = columns;
    this.box = byId("column-filters");
    this.inputs = [...(this.box?.querySelectorAll("[data-column]") ?? [])];
    this.box?.addEventListener("input", onChange);
  }

  // The filters that are set, each as the place of its column, how it compares and with what.
  get conditions() {
    return this.inputs.filter(({ value }) => value.trim() !== "")
      .map(({ dataset, value }) => ({ column: Number(dataset.column), how: dataset.how, value: value.trim() }));
  }

  reset() { for (const input of this.inputs) input.value = ""; }

  fulfils(place, conditions) {
    return conditions.every(({ column, how, value }) => {
      const { kind, texts, places, numbers } = this.columns[column];
      if (how === "is") return places[place] === Number(value);
      if (how === "has") return (texts[place] ?? "").toLowerCase().includes(value.toLowerCase());
      const number = numbers[place], bound = kind === "date" ? Date.parse(value) / 1000 : Number(value);
      if (number === null) return false;
      if (how === "min") return number >= bound;
      return kind === "date" ? number < bound + DAY_IN_SECONDS : number <= bound;
    });
  }

  // The value of a card in words; a dash where it has none.
  text(column, place) {
    const { texts, places } = this.columns[column];
    return (places ? texts[places[place]] : texts[place]) ?? "–";
  }

  // The captions name the columns that the cards are filtered by.
  caption(card, place, conditions) {
    const caption = card.querySelector(".caption");
    for (const old of caption.querySelectorAll(".column")) old.remove();
    for (const column of new Set(conditions.map((each) => each.column))) {
      const line = document.createElement("span"), name = document.createElement("span");
      const value = document.createElement("bdi"), title = document.createElement("bdi");
      line.className = "column";
      name.className = "column-name";
      title.textContent = this.columns[column].name;
      name.append(title);
      value.textContent = this.text(column, place);
      line.title = `${title.textContent}: ${value.textContent}`;
      line.append(name, " ", value);
      caption.append(line);
    }
  }

  // Whether a card has a value of a column; the last category stands for none.
  has(column, place) {
    const { texts, places } = this.columns[column];
    return places ? places[place] < texts.length - 1 : texts[place] !== null;
  }

  // The columns of which a card has a value, with it.
  describe(place) {
    return this.columns.flatMap(({ name }, column) => this.has(column, place) ? [`${name}: ${this.text(column, place)}`] : []);
  }
}
