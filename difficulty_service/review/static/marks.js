// Marks of a person, kept in this browser for each dataset and downloaded as CSV.

class Marks {
  constructor(key) {
    this.key = `difficulty-marks:${key}`;
    this.byId = new Map();
    this.past = [];
    this.saved = true;
    this.listeners = [];
    this.load();
    window.addEventListener("storage", (event) => {
      if (event.key !== this.key) return;
      this.load();
      this.changed();
    });
  }

  load() {
    const text = storage.get(this.key);
    if (text === null) return;
    try {
      const marks = JSON.parse(text);
      if (Array.isArray(marks)) this.byId = new Map(marks);
    } catch { /* not a list of marks: another program's */ }
  }

  get(id) { return this.byId.get(id); }

  // The same mark again takes it away.
  toggle(id, mark) {
    this.load();
    const before = this.byId.get(id);
    this.past.push([id, before]);
    this.put(id, before && before.mark === mark.mark ? undefined : mark);
  }

  undo() {
    const last = this.past.pop();
    if (!last) return null;
    this.load();
    this.put(...last);
    return last[0];
  }

  clear() {
    this.byId.clear();
    this.past = [];
    this.changed(true);
  }

  put(id, mark) {
    this.byId.delete(id);
    if (mark) this.byId.set(id, mark);
    this.changed(true);
  }

  changed(write = false) {
    if (write) this.saved = storage.set(this.key, JSON.stringify([...this.byId]));
    for (const listener of this.listeners) listener();
  }

  counts() {
    const counts = { keep: 0, relabel: 0, drop: 0 };
    for (const { mark } of this.byId.values()) counts[mark] += 1;
    return counts;
  }

  toCsv() {
    const rows = [["sample_id", "mark", "label", "given_label", "label_margin"]];
    for (const [id, { mark, label, given, margin }] of this.byId) {
      rows.push([csvText(id), mark, mark === "relabel" ? csvText(label) : "", csvText(given), margin]);
    }
    return rows.map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";
  }
}

// A ' keeps spreadsheets from running text as a formula; `difficulty clean` removes it again.
const csvText = (text) => (/^[=+\-@]/.test(text) ? `'${text}` : text);
const csvCell = (cell) =>
  /[",;\t\r\n]/.test(cell) ? `"${String(cell).replaceAll('"', '""')}"` : String(cell);

// Wilson's 95 % interval of a share, as whole percentages.
function wilson(successes, trials) {
  const z = 1.959964, share = successes / trials, scale = 1 + z * z / trials;
  const centre = share + z * z / (2 * trials);
  const half = z * Math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials));
  const percent = (value) => Math.round(100 * Math.min(1, Math.max(0, value / scale)));
  return [percent(centre - half), percent(centre + half)];
}

function plural(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

function describeMarks(marks) {
  const counts = marks.counts(), checked = marks.byId.size;
  const wrong = counts.relabel + counts.drop;
  let text = `${checked.toLocaleString("en")} checked: ${counts.keep} keep, `
    + `${counts.relabel} relabel, ${counts.drop} drop.`;
  if (checked >= 5) {
    const [low, high] = wilson(wrong, checked);
    text += ` ${Math.round(100 * wrong / checked)} % of these labels are wrong`
      + ` (95 % interval ${low}–${high} %).`;
  }
  if (!marks.saved) text += " This browser does not keep them: download before you leave.";
  return text;
}

function download(name, text) {
  const link = document.createElement("a");
  // The mark of UTF-8 at the beginning is for spreadsheets.
  link.href = URL.createObjectURL(new Blob(["\ufeff", text], { type: "text/csv;charset=utf-8" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

