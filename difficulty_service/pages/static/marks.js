// Marks of a person, their history, and how a card shows its mark.

export const isSame = (one, other) =>
  one?.mark === other?.mark && (one?.label || null) === (other?.label || null);

export const labelOf = (mark) => (mark ? mark.label || mark.mark : "");

export function markOf(card) {
  const { mark, label } = card.dataset;
  return mark ? { mark, label: label || null } : null;
}

export function showMark(card, mark) {
  if (mark) {
    card.dataset.mark = mark.mark;
    card.dataset.label = mark.label || "";
  } else {
    delete card.dataset.mark;
    delete card.dataset.label;
  }
  card.querySelector(".stamp").textContent = labelOf(mark);
}

// What was changed, over a store of marks: `get(id)` gives a mark or null, `write(changes)` a promise
// of the changes that were `done`, of those that `failed` and may be tried again, and the `reason`.
export class Marks {
  // `past` is what can be undone; its `keep` is called when that has changed.
  constructor(store, past = { steps: [], keep() {} }) {
    this.store = store;
    this.kept = past;
  }

  get past() { return this.kept.steps; }

  set past(steps) {
    this.kept.steps = steps;
    this.kept.keep();
  }

  // Each of `marks` has an id and a mark; where all of them are there already, they are taken away.
  toggle(marks) {
    const changes = marks.map(({ id, mark }) => ({ id, before: this.store.get(id), after: mark }));
    const isAgain = changes.every(({ before, after }) => isSame(before, after));
    this.make(isAgain ? changes.map((change) => ({ ...change, after: null })) : changes);
  }

  async make(changes, onProgress) {
    const step = { changes };
    this.past = [...this.past, step];
    const result = await this.store.write(changes, onProgress);
    step.changes = result.done;
    this.past = this.past.filter((each) => each !== step || step.changes.length);
    return result;
  }

  // Restores what was before the last step; what fails stays for another try.
  undo(onProgress) {
    const last = this.past.at(-1);
    if (!last) return null;
    this.past = this.past.slice(0, -1);
    const back = last.changes.map(({ id, before, after }) => ({ id, before: after, after: before }));
    const restore = async () => {
      const result = await this.store.write(back, onProgress);
      const failed = new Set(result.failed.map(({ id }) => id));
      const changes = last.changes.filter(({ id }) => failed.has(id));
      if (changes.length) this.past = [...this.past, { changes }];
      return result;
    };
    return { id: back[0].id, number: back.length, result: restore() };
  }
}
