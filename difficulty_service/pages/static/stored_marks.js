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
      text += ` ${single.hits.toLocaleString("en")} of the ${single.cases.toLocaleString("en")} labels that were`
        + ` checked one by one ${single.hits === 1 ? "is" : "are"} wrong.`;
    }
    if (!this.saved) text += " This browser does not keep them: download before you leave.";
    return text;
  }

  // How many wrong labels nobody has found yet, as `left_at_random` of random_checks.py has it.
  leftAtRandom(random, wrong) {
    const { cases, hits } = random, since = wrong - hits, shares = [], ends = [];
    for (const [among, found] of [[this.among, since], [this.among - (this.byId.size - cases), 0]]) {
      shares.push(Math.max(0, hits / cases * (among - cases) - found));
      ends.push(...wrongAmong(among, cases, hits).map((end) => Math.max(0, end - hits - found)));
    }
    const likely = Math.round((shares[0] + shares[1]) / 2), [low, high] = [Math.min(...ends), Math.max(...ends)];
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

// The exact 95 % interval of the number of wrong labels, as `wrong_among` of random_checks.py has it.
export function wrongAmong(total, checked, wrong) {
  return [fewest(total, checked, wrong), total - fewest(total, checked, checked - wrong)];
}

function fewest(total, checked, wrong) {
  let low = wrong, high = total - (checked - wrong);
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if (hasSoMany(total, checked, wrong, middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

function hasSoMany(total, checked, wrong, allWrong) {
  if (wrong * total <= allWrong * checked) return true;
  const right = total - allWrong;
  let term = Math.exp(logChoices(allWrong, wrong) + logChoices(right, checked - wrong) - logChoices(total, checked));
  let probability = term;
  for (let number = wrong; number < Math.min(checked, allWrong) && probability < 0.025; number += 1) {
    term *= (allWrong - number) * (checked - number) / ((number + 1) * (right - checked + number + 1));
    probability += term;
  }
  return probability >= 0.025;
}

function logChoices(total, chosen) {
  const few = Math.min(chosen, total - chosen);
  let sum = 0;
  for (let number = 1; number <= few; number += 1) sum += Math.log((total - few + number) / number);
  return sum;
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

