// Colours of the map by columns beside the scores, which are fetched when they are asked for.

const LARGEST = 65534;  // of map_columns.py

// The values of all images: numbers of `names`, or whole numbers up to LARGEST.
async function fetchColumn(address, name) {
  const answer = await fetch(`${address}/column?${new URLSearchParams({ name })}`).catch(() => null);
  if (!answer?.ok) return null;
  const { values, ...meaning } = await answer.json();
  const bytes = Uint8Array.from(atob(values), (letter) => letter.charCodeAt(0));
  return { ...meaning, all: new Uint16Array(bytes.buffer) };
}

export class MapColumns {
  constructor(address, map, say) {
    Object.assign(this, { address, map, say, known: new Map() });
    for (const input of document.querySelectorAll("input[name=colour][data-column]")) {
      input.addEventListener("change", () => this.load(input));
    }
  }

  async load({ value, dataset }) {
    if (!this.known.has(value)) {
      const column = await fetchColumn(this.address, dataset.column);
      if (!column) {
        this.say("The values of this column cannot be fetched. Choose it again later.");
        return;
      }
      this.known.set(value, column);
    }
    this.paint();
  }

  // The values of the points of the present layout.
  paint() {
    const { points } = this.map;
    for (const [name, { all, names, texts }] of this.known) {
      const values = Uint16Array.from({ length: points.count }, (_, index) => all[points.rowOf(index)]);
      this.map.setColumn(name, names ? { values, names } : { values, low: 0, high: LARGEST, texts });
    }
  }
}
