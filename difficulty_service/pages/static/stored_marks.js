// The marks of a report, kept in this browser for each dataset and downloaded as CSV.

import { MARK_KINDS } from "./keys.js";
import { storage } from "./page.js";

export class StoredMarks {
  // `order` is that of the samples, `among` the number of all those that nobody had looked at,
  // `formula` what text a spreadsheet might run begins with, as csv_cells.py has it;
  // `detailsOf` gives what else is stored beside a mark; `onChange` is called here and for other tabs.
  constructor(key, { order, among, formula }, detailsOf, onChange) {
    Object.assign(this, { key: `difficulty-marks:${key}`, order, among, detailsOf, onChange });
    this.formula = new RegExp(formula, "u");
    this.known = new Map();
    this.text = null;
    this.saved = true;
    window.addEventListener("storage", (event) => { if (event.key === this.key) onChange(); });
  }

  // All marks by sample id, with those that another tab has stored meanwhile.
  get byId() {
    const text = storage.get(this.key);
    if (text === null || text === this.text) return this.known;
    this.text = text;
    try {
      const marks = JSON.parse(text);
      if (Array.isArray(marks)) this.known = new Map(marks);
    } catch { /* not a list of marks: another program's */ }
    return this.known;
  }

  get(id) { return this.byId.get(id) ?? null; }

  async write(changes) {
    const { byId } = this;
    // Who marks several at once has not looked at each of them in its order.
    const order = changes.length === 1 ? this.order : "";
    for (const { id, after } of changes) {
      byId.delete(id);
      if (after) byId.set(id, { ...this.detailsOf(id), order, ...after, label: after.label || "" });
    }
    this.save();
    return { done: changes, failed: [], reason: "" };
  }

  clear() {
    this.byId.clear();
    this.save();
  }

  save() {
    const text = JSON.stringify([...this.known]);
    this.saved = storage.set(this.key, text);
    if (this.saved) this.text = text;
    this.onChange();
  }

  // The marks in a sentence, with what they say about labels once there are enough, in the words of
  // `label_counts.py`. Those that were given to several at once say nothing.
  describe() {
    const { byId } = this, checked = byId.size, counts = Object.fromEntries(MARK_KINDS.map(({ mark }) => [mark, 0]));
    const wrong = MARK_KINDS.filter(({ isWrong }) => isWrong).map(({ mark }) => mark);
    const random = { cases: 0, hits: 0 }, single = { cases: 0, hits: 0 };
    for (const { mark, order } of byId.values()) {
      counts[mark] += 1;
      for (const each of [order && single, order === "random" && random]) {
        if (!each) continue;
        each.cases += 1;
        each.hits += wrong.includes(mark);
      }
    }
    let text = `${checked.toLocaleString("en")} checked: `
      + `${Object.entries(counts).map(([mark, number]) => `${number} ${mark}`).join(", ")}.`;
    if (random.cases >= 5) text += ` ${this.leftAtRandom(random, wrong.reduce((sum, mark) => sum + counts[mark], 0))}`;
    else if (single.cases >= 5) {
      const [low, high] = wilson(single).map((share) => Math.round(100 * share));
      text += ` ${Math.round(100 * single.hits / single.cases)} % of the ${single.cases.toLocaleString("en")}`
        + ` labels that were checked one by one are wrong (95 % interval ${low} to ${high} %).`;
    }
    if (!this.saved) text += " This browser does not keep them: download before you leave.";
    return text;
  }

  // How many wrong labels nobody has found yet, by those that came up at random.
  leftAtRandom(random, wrong) {
    const { cases, hits } = random, others = this.among - cases;
    const [likely, low, high] = [hits / cases, ...wilson(random)]
      .map((share) => Math.max(0, Math.round(share * others) - (wrong - hits)));
    return `Of ${plural(cases, "label")} in a random order, ${hits} ${hits === 1 ? "was" : "were"} wrong, so`
      + ` that about ${plural(likely, "label")} ${likely === 1 ? "is" : "are"} wrong and not found yet`
      + ` (95 % interval ${low.toLocaleString("en")} to ${high.toLocaleString("en")}).`;
  }

  toCsv() {
    const rows = [["sample_id", "mark", "label", "given_label", "order", "label_margin"]];
    for (const [id, { mark, label, given, order, margin }] of this.byId) {
      rows.push([...[id, mark, label, given, order ?? ""].map((text) => this.guarded(text)), margin ?? ""]);
    }
    return rows.map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";
  }

  // A ' keeps spreadsheets from running text as a formula; `difficulty clean` removes it again.
  guarded(text) { return this.formula.test(text) ? `'${text}` : text; }
}

const csvCell = (cell) =>
  /[",;\t\r\n]/.test(cell) ? `"${String(cell).replaceAll('"', '""')}"` : String(cell);

// Wilson's 95 % interval of a share.
function wilson({ hits, cases }) {
  const z = 1.959964, share = hits / cases, scale = 1 + z * z / cases;
  const centre = share + z * z / (2 * cases);
  const half = z * Math.sqrt(share * (1 - share) / cases + z * z / (4 * cases * cases));
  return [centre - half, centre + half].map((value) => Math.min(1, Math.max(0, value / scale)));
}

export function plural(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

export function download(name, text) {
  const link = document.createElement("a");
  // The mark of UTF-8 at the beginning is for spreadsheets.
  link.href = URL.createObjectURL(new Blob(["\ufeff", text], { type: "text/csv;charset=utf-8" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

