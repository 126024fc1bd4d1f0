// Marks of many images at once, sent in parts, some of which may fail.

import { refreshTray, signIn, tellTabs } from "./marks.js";

const AT_ONCE = 1000;
const isSame = (one, other) => one?.mark === other?.mark && one?.label === other?.label;

export class BulkMarks {
  constructor(job) {
    this.job = job;
    this.address = `/v1/jobs/${job}/marks`;
    this.past = [];
  }

  // Gives each row its mark, or null for none. Resolves to the changes made and why others failed.
  async mark(rows, markFor, onProgress) {
    let before;
    try {
      before = await this.known(Math.min(...rows), Math.max(...rows));
    } catch (error) {
      return { done: [], failed: rows.length, reason: error.message };
    }
    const changes = rows
      .map((row) => ({ row, before: before.get(row) ?? null, after: markFor(row) }))
      .filter(({ before: old, after }) => !isSame(old, after));
    const result = await this.send(changes, onProgress);
    if (result.done.length) this.past.push(result.done);
    return result;
  }

  // Restores what was before the last marks; keeps what fails for another try.
  async undo(onProgress) {
    const last = this.past.pop();
    const back = last.map(({ row, before, after }) => ({ row, before: after, after: before }));
    const result = await this.send(back, onProgress);
    const restored = new Set(result.done.map(({ row }) => row));
    const rest = last.filter(({ row }) => !restored.has(row));
    if (rest.length) this.past.push(rest);
    return result;
  }

  async known(first, last) {
    const marks = new Map();
    for (let after = first; after !== null && after <= last;) {
      const page = await this.ask(`${this.address}?limit=${AT_ONCE}&after=${after}`);
      for (const { row, mark, label } of page.marks) marks.set(row, { mark, label });
      after = page.next;
    }
    return marks;
  }

  async send(changes, onProgress) {
    const done = [];
    let reason = "";
    for (let start = 0; start < changes.length; start += AT_ONCE) {
      const part = changes.slice(start, start + AT_ONCE);
      const marks = part.map(({ row, before, after }) => ({ row, decision: after, seen: before }));
      try {
        await this.ask(this.address, {
          method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ marks }),
        });
        done.push(...part);
      } catch (error) {
        reason = error.message;
      }
      onProgress(Math.min(1, (start + AT_ONCE) / changes.length));
    }
    if (done.length) {
      tellTabs(this.job, done.map(({ row, after }) => ({ row, mark: after })));
      refreshTray(this.job);
    }
    return { done, failed: changes.length - done.length, reason };
  }

  async ask(address, options) {
    let answer;
    try {
      answer = await fetch(address, options);
    } catch {
      throw new Error("the service does not answer");
    }
    if (answer.status === 401) signIn();
    const body = await answer.json().catch(() => null);
    if (!answer.ok) throw new Error(body?.detail ?? `the service answers ${answer.status}`);
    return body;
  }
}
