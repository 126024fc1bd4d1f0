// Colours of the map by columns beside the scores, which are fetched when they are asked for.

export class MapColumns {
  constructor(address, map, say) {
    Object.assign(this, { address, map, say, known: new Map() });
    for (const input of document.querySelectorAll("input[name=colour][data-column]")) {
      input.addEventListener("change", () => this.load(input));
    }
  }

  async load({ value, dataset }) {
    if (!this.known.has(value)) {
      const query = new URLSearchParams({ name: dataset.column });
      const answer = await fetch(`${this.address}/column?${query}`).catch(() => null);
      if (!answer?.ok) {
        this.say("The values of this column cannot be fetched. Choose it again later.");
        return;
      }
      // Of the scripts of the map, which reports have, too.
      this.known.set(value, unpackColumn(await answer.json()));
    }
    this.paint();
  }

  // The values of the points of the present layout.
  paint() {
    const { points } = this.map;
    for (const [name, column] of this.known) {
      const values = Uint16Array.from({ length: points.count }, (_, index) => column.values[points.rowOf(index)]);
      this.map.setColumn(name, besideColumn({ ...column, values }));
    }
  }
}
