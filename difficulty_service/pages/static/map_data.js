// The points of a map, as map_points.py packs them.

export const NO_LEVEL = 255, LEVELS = 254;
const TYPES = { Uint8Array, Uint16Array, Uint32Array, Int16Array, Int32Array };

export class MapPoints {
  constructor(facts, columns) { Object.assign(this, facts, { columns }); }

  // From JSON in a page, whose columns are in base64.
  static fromJson(value) {
    const columns = Object.entries(value.columns).map(([name, [type, text]]) => {
      const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
      return [name, new TYPES[type](bytes.buffer)];
    });
    return new MapPoints(value, Object.fromEntries(columns));
  }

  // From the bytes of a service: the length of the facts, the facts, and each column after the other.
  static fromBytes(buffer) {
    const length = new DataView(buffer).getUint32(0, true);
    const facts = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
    let start = 4 + length;
    const columns = Object.entries(facts.columns).map(([name, [type, number]]) => {
      const values = new TYPES[type](buffer, start, number);
      start += 4 * Math.ceil(values.byteLength / 4);
      return [name, values];
    });
    return new MapPoints(facts, Object.fromEntries(columns));
  }

  get positions() { return this.columns.positions; }

  rowOf(index) { return this.step === null ? this.columns.rows[index] : index * this.step; }

  // The place of a row among the points; undefined where it is not drawn.
  indexOf(row) {
    if (this.step !== null) return row % this.step || row / this.step >= this.count ? undefined : row / this.step;
    this.places ??= new Map(Array.from(this.columns.rows, (each, index) => [each, index]));
    return this.places.get(row);
  }

  nameOf(label) { return this.names[label]; }
}
