// Marks of the images on this page, stored by the service and told to the other tabs.

const channel = new BroadcastChannel("difficulty-marks");

// Shows changes of marks, each with its row, in the other tabs with this job.
export const tellTabs = (job, changes) => channel.postMessage({ job, changes });

let trayTimer;

// Shows the number of marks below the page anew, once for several changes in a row.
export function refreshTray(job) {
  clearTimeout(trayTimer);
  trayTimer = setTimeout(async () => {
    const answer = await fetch(`/jobs/${job}/tray`, { headers: { "HX-Request": "true", Accept: "text/html" } });
    if (!answer.ok) return;
    const box = document.getElementById("tray-box");
    box.innerHTML = await answer.text();
    const text = document.getElementById("tray-text");
    if (text) document.getElementById("announcer").textContent = text.textContent;
  }, 120);
}

// Asks for a key where the one of this page is no longer valid, and comes back here.
export function signIn() {
  window.location.href = `/sign-in?next=${encodeURIComponent(window.location.pathname + window.location.search)}`;
}

export const labelOf = (mark) => (mark === null ? "" : mark.label || mark.mark);

export function markOf(card) {
  const { mark, label } = card.dataset;
  return mark ? { mark, label: label || null } : null;
}

export function showMark(card, mark) {
  if (mark === null) {
    delete card.dataset.mark;
    delete card.dataset.label;
  } else {
    card.dataset.mark = mark.mark;
    card.dataset.label = mark.label || "";
  }
  card.querySelector(".stamp").textContent = labelOf(mark);
}

const isSame = (one, other) =>
  (one && one.mark) === (other && other.mark) && (one && one.label) === (other && other.label);

export class Marks {
  constructor(job, cardOf, report) {
    this.job = job;
    this.cardOf = cardOf;
    this.report = report;
    this.past = [];
    this.queue = Promise.resolve();
    channel.addEventListener("message", ({ data }) => {
      if (data.job !== job) return;
      for (const { row, mark } of data.changes) {
        const card = cardOf(row);
        if (card) showMark(card, mark);
      }
      refreshTray(job);
    });
  }

  // The same marks again take them away. markFor gives the mark of a card.
  toggle(cards, markFor) {
    const same = cards.every((card) => isSame(markOf(card), markFor(card)));
    this.change(cards.map((card) => ({
      row: Number(card.dataset.row), before: markOf(card), after: same ? null : markFor(card),
    })));
  }

  change(changes, isUndo = false) {
    for (const { row, after } of changes) {
      const card = this.cardOf(row);
      if (card) showMark(card, after);
    }
    if (!isUndo) this.past.push(changes);
    // One after the other, as a later change builds on the mark that an earlier one left.
    this.queue = this.queue.then(() => this.send(changes, isUndo));
    return this.queue;
  }

  undo() {
    const last = this.past.pop();
    if (!last) return null;
    this.change(last.map(({ row, before, after }) => ({ row, before: after, after: before })), true);
    return last[0].row;
  }

  async send(changes, isUndo) {
    const body = JSON.stringify({
      marks: changes.map(({ row, before, after }) => ({ row, decision: after, seen: before })),
    });
    let answer;
    try {
      answer = await fetch(`/v1/jobs/${this.job}/marks`, {
        method: "POST", headers: { "Content-Type": "application/json" }, body,
      });
    } catch {
      this.revert(changes, "The service does not answer. This mark is not stored.");
      return;
    }
    if (answer.ok) {
      tellTabs(this.job, changes.map(({ row, after }) => ({ row, mark: after })));
      refreshTray(this.job);
      return;
    }
    if (answer.status === 401) {
      signIn();
      return;
    }
    if (!isUndo) this.past = this.past.filter((each) => each !== changes);
    if (answer.status === 409) {
      await Promise.all(changes.map(({ row }) => this.reload(row)));
      this.report("This image was marked elsewhere meanwhile. Its card shows that mark now.");
      return;
    }
    const problem = await answer.json().catch(() => null);
    this.revert(changes, problem ? `${problem.detail}. The mark is not stored.` : "The mark is not stored.");
  }

  revert(changes, reason) {
    for (const { row, before } of changes) {
      const card = this.cardOf(row);
      if (card) showMark(card, before);
    }
    this.report(reason);
  }

  async reload(row) {
    const answer = await fetch(`/jobs/${this.job}/images/${row}`, { headers: { "HX-Request": "true", Accept: "text/html" } });
    const card = this.cardOf(row);
    if (!answer.ok || !card) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector(".card");
    showMark(card, markOf(fresh));
  }
}
