// What can be undone in a job, kept while the tab is open.

const MOST_STEPS = 200;

export class SessionPast {
  constructor(job) {
    this.key = `difficulty-past:${job}`;
    this.steps = [];
    try {
      this.steps = (JSON.parse(sessionStorage.getItem(this.key)) ?? [])
        .map((changes) => ({ changes: changes.map(([id, before, after]) => ({ id, before, after })) }));
    } catch { /* the browser keeps nothing, or another program's */ }
    this.offer();
  }

  offer() { document.documentElement.classList.toggle("can-undo", this.steps.length > 0); }

  // Keeps the last steps; where there is no room for them, this page alone has them.
  keep() {
    this.offer();
    const steps = this.steps.slice(-MOST_STEPS)
      .map(({ changes }) => changes.map(({ id, before, after }) => [id, before, after]));
    try { sessionStorage.setItem(this.key, JSON.stringify(steps)); } catch {
      try { sessionStorage.removeItem(this.key); } catch { /* nothing is kept */ }
    }
  }
}
