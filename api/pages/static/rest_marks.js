// The store of marks behind the service: conflicts, other tabs and the tray.

import { isSame, markOf, showMark } from "./report/marks.js";
import { byId } from "./report/page.js";

const AT_ONCE = 1000;
const CONFLICT = 409;

class Refusal extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

export class RestMarks {
  // `cardOf` gives the card of a row, if there is one here; `say` tells why a mark is not stored.
  constructor(job, cardOf = () => null, say = () => {}) {
    Object.assign(this, { job, cardOf, say, address: `/v1/jobs/${job}/marks`, queue: Promise.resolve() });
    this.channel = new BroadcastChannel("difficulty-marks");
    this.channel.addEventListener("message", ({ data }) => {
      if (data.job !== job) return;
      for (const { row, mark } of data.changes) this.show(row, mark);
      this.refreshTray();
    });
  }

  get(row) {
    const card = this.cardOf(row);
    return card ? markOf(card) : null;
  }

  show(row, mark) {
    const card = this.cardOf(row);
    if (card) showMark(card, mark);
  }

  // The stored marks of the rows from the first to the last.
  async known(first, last) {
    const marks = new Map();
    for (let after = first; after !== null && after <= last;) {
      const page = await this.ask(`${this.address}?limit=${AT_ONCE}&after=${after}`);
      for (const { row, mark, label } of page.marks) marks.set(row, { mark, label });
      after = page.next;
    }
    return marks;
  }

  write(changes, onProgress = () => {}) {
    for (const { id, after } of changes) this.show(id, after);
    // One after the other, as a later change builds on the mark that an earlier one left.
    this.queue = this.queue.then(() => this.send(changes, onProgress));
    return this.queue;
  }

  // Sends changes in parts, some of which may fail. What was marked elsewhere meanwhile is neither
  // done nor failed: that mark is shown and stays.
  async send(changes, onProgress) {
    const done = [], failed = [], parts = [];
    for (let start = 0; start < changes.length; start += AT_ONCE) parts.push(changes.slice(start, start + AT_ONCE));
    let reason = "";
    while (parts.length) {
      const part = parts.shift();
      try {
        await this.post(part);
        done.push(...part);
      } catch (error) {
        reason = error.message;
        const rows = part.map(({ id }) => id);
        const stored = error.status === CONFLICT
          ? await this.known(Math.min(...rows), Math.max(...rows)).catch(() => null) : null;
        const isFree = ({ id, before }) => !stored || isSame(before, stored.get(id) ?? null);
        const free = part.filter(isFree);
        if (free.length === part.length) {
          failed.push(...part);
          for (const { id, before } of part) this.show(id, before);
          this.say(`${reason[0].toUpperCase()}${reason.slice(1)}. The mark is not stored.`);
        } else {
          for (const each of part) if (!isFree(each)) this.show(each.id, stored.get(each.id) ?? null);
          if (free.length) parts.unshift(free);
          this.say("This image was marked elsewhere meanwhile. Its card shows that mark now.");
        }
      }
      onProgress(1 - parts.flat().length / changes.length);
    }
    if (done.length) this.tell(done);
    return { done, failed, reason };
  }

  // Tells other tabs and the tray about changes that are stored.
  tell(changes) {
    this.channel.postMessage({ job: this.job, changes: changes.map(({ id, after }) => ({ row: id, mark: after })) });
    this.refreshTray();
  }

  post(changes) {
    // Who marks several at once has not looked at each of them in its order.
    const order = changes.length === 1 ? document.querySelector("[data-order]")?.dataset.order ?? "" : "";
    const marks = changes.map(({ id, before, after }) => ({ row: id, decision: after, seen: before, order }));
    const headers = { "Content-Type": "application/json" };
    // Whoever leaves the page at once keeps the mark; browsers allow that for small requests only.
    const keepalive = changes.length === 1;
    return this.ask(this.address, { method: "POST", headers, body: JSON.stringify({ marks }), keepalive });
  }

  async ask(address, options) {
    const answer = await fetch(address, options).catch(() => {
      throw new Refusal(0, "the service does not answer");
    });
    if (answer.status === 401) {
      // Asks for a key, as the one of this page is no longer valid, and comes back here.
      const { pathname, search } = window.location;
      window.location.href = `/sign-in?next=${encodeURIComponent(pathname + search)}`;
    }
    const body = await answer.json().catch(() => null);
    if (!answer.ok) throw new Refusal(answer.status, body?.detail ?? `the service answers ${answer.status}`);
    return body;
  }

  // Shows the number of marks below the page anew, once for several changes in a row.
  refreshTray() {
    clearTimeout(this.timer);
    this.timer = setTimeout(async () => {
      const headers = { "HX-Request": "true", Accept: "text/html" };
      // Whoever leaves the page meanwhile ends the request.
      const tray = await fetch(`/jobs/${this.job}/tray`, { headers })
        .then((answer) => (answer.ok ? answer.text() : null)).catch(() => null);
      if (tray === null) return;
      byId("tray-box").innerHTML = tray;
      byId("announcer").textContent = byId("tray-text")?.textContent ?? "";
    }, 120);
  }
}
