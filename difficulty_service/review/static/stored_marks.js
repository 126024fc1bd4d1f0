// The marks of a report, kept in this browser for each dataset and downloaded as CSV.

class StoredMarks {
  // `order` is that of the samples; `detailsOf` gives what else is stored beside a mark; `onChange` is
  // called here and for other tabs.
  constructor(key, order, detailsOf, onChange) {
    Object.assign(this, { key: `difficulty-marks:${key}`, order, detailsOf, onChange });
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

  // The marks in a sentence, with the share of wrong labels once there are enough.
  describe() {
    const { byId } = this, checked = byId.size, counts = { keep: 0, relabel: 0, drop: 0 };
    for (const { mark } of byId.values()) counts[mark] += 1;
    const wrong = counts.relabel + counts.drop;
    let text = `${checked.toLocaleString("en")} checked: ${counts.keep} keep, `
      + `${counts.relabel} relabel, ${counts.drop} drop.`;
    if (checked >= 5) {
      const [low, high] = wilson(wrong, checked);
      text += ` ${Math.round(100 * wrong / checked)} % of these labels are wrong`
        + ` (95 % interval ${low}–${high} %).`;
    }
    if (!this.saved) text += " This browser does not keep them: download before you leave.";
    return text;
  }

  toCsv() {
    const rows = [["sample_id", "mark", "label", "given_label", "order", "label_margin"]];
    for (const [id, { mark, label, given, order, margin }] of this.byId) {
      const newLabel = mark === "relabel" ? csvText(label) : "";
      rows.push([csvText(id), mark, newLabel, csvText(given), order ?? "", margin ?? ""]);
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

function download(name, text) {
  const link = document.createElement("a");
  // The mark of UTF-8 at the beginning is for spreadsheets.
  link.href = URL.createObjectURL(new Blob(["\ufeff", text], { type: "text/csv;charset=utf-8" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

