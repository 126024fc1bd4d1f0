// Colours of the map by columns beside the scores, which are fetched when they are asked for.

import { besideColumn, unpackColumn } from "./report/map_colours.js";

export class MapColumns {
  constructor(address, map, say) {
    Object.assign(this, { address, map, say, known: new Map() });
    for (const input of document.querySelectorAll("input[name=colour][data-column]")) {
      input.addEventListener("change", () => this.load(input));
    }
  }

  async load({ value, dataset }) {
    if (this.known.has(value)) return;  // the map has it already
    const query = new URLSearchParams({ name: dataset.column });
    const answer = await fetch(`${this.address}/column?${query}`).catch(() => null);
    if (!answer?.ok) {
      this.say("The values of this column cannot be fetched. Choose it again later.");
      return;
    }
    this.known.set(value, unpackColumn(await answer.json()));
    this.give(value);
  }

  // Gives the map the values of its points, which another layout has changed.
  paint() { for (const name of this.known.keys()) this.give(name); }

  give(name) {
    const { points } = this.map, column = this.known.get(name);
    const values = Uint16Array.from({ length: points.count }, (_, index) => column.values[points.rowOf(index)]);
    this.map.setColumn(name, besideColumn({ ...column, values }));
  }
}
