// The page of the map: fetches the points, draws them, and marks those in the lasso.

import { Lasso } from "./lasso.js";
import { RestMarks } from "./rest_marks.js";
import { classNames } from "./review_page.js";

const count = (number) => number.toLocaleString("en");
const DONE = { keep: "marked keep", relabel: "relabelled", drop: "marked drop", none: "without a mark now" };

async function start(box) {
  const answer = await fetch(box.dataset.points).catch(() => null);
  if (!answer?.ok) {
    byId("map-status").textContent = "The points of the map cannot be fetched. Load the page again, or sign in again.";
    return;
  }
  // Of the script of the map, which reports have, too.
  const map = new ImageMap(await answer.json());
  byId("map-status").hidden = true;
  startSelection(box, map);
}

function startSelection(box, map) {
  const choice = byId("lasso-class") && new ClassChoice(byId("lasso-class"), classNames, () => {}, { isFree: true });
  const store = new RestMarks(box.dataset.job), marks = new Marks(store);
  const [panel, text, show, progress, undo] = ["lasso", "lasso-text", "lasso-show", "lasso-progress", "lasso-undo"].map(byId);
  const say = (sentence) => {
    text.textContent = sentence;
    byId("announcer").textContent = sentence;
  };
  const lasso = new Lasso(map, byId("lasso-canvas"), byId("lasso-touch"), (corners, selected) => {
    panel.hidden = corners.length === 0 && marks.past.length === 0;
    panel.classList.toggle("none", selected.length === 0);
    say(selected.length ? `${count(selected.length)} in the lasso` : "No image is in the lasso.");
    show.href = `${map.data.address}?area=${corners.flat().join("_")}`;
  });

  const run = async (number, work, told) => {
    const buttons = [...panel.querySelectorAll("button")];
    for (const button of buttons) button.disabled = true;
    progress.value = 0;
    progress.hidden = false;
    const { done, reason, same = 0 } = await work((share) => { progress.value = share; })
      .catch((error) => ({ done: [], reason: error.message }));
    progress.hidden = true;
    for (const button of buttons) button.disabled = false;
    if (undo) undo.hidden = marks.past.length === 0;
    const failed = number - done.length - same;
    say([
      done.length ? `${count(done.length)} ${told}.` : "",
      same ? `${count(same)} already had this mark.` : "",
      failed ? `${count(failed)} could not be changed: ${reason}. Try again.` : "",
    ].join(" ").trim());
  };

  // Gives each row its mark, or null for none; those that have it already are left alone.
  const give = async (wanted, onProgress) => {
    const rows = [...wanted.keys()], known = await store.known(Math.min(...rows), Math.max(...rows));
    const changes = rows
      .map((row) => ({ id: row, before: known.get(row) ?? null, after: wanted.get(row) }))
      .filter(({ before, after }) => !isSame(before, after));
    return { ...await marks.make(changes, onProgress), same: rows.length - changes.length };
  };

  // The mark of each point, or undefined for a point that it does not apply to.
  const decisions = (kind) => {
    const { labels, names, nearest } = map.data;
    if (kind === "relabel") {
      return (index) => (nearest[index] >= 0 && nearest[index] !== labels[index]
        ? { mark: "relabel", label: names[nearest[index]] } : undefined);
    }
    if (kind === "relabel-as") {
      const label = choice?.best ?? byId("lasso-class").value;
      return () => (label ? { mark: "relabel", label } : undefined);
    }
    return () => (kind === "none" ? null : { mark: kind, label: null });
  };

  panel.addEventListener("click", (event) => {
    const { kind } = event.target.closest("[data-kind]")?.dataset ?? {};
    if (!kind) return;
    const decide = decisions(kind);
    const wanted = new Map(lasso.selected.map((index) => [map.data.rows[index], decide(index)]).filter(([, mark]) => mark !== undefined));
    if (!wanted.size) {
      if (kind === "relabel-as") byId("lasso-class").focus();
      say(kind === "relabel" ? "No other class fits any of these images better." : "Choose a class first.");
      return;
    }
    run(wanted.size, (onProgress) => give(wanted, onProgress), DONE[kind.split("-")[0]]);
  });
  undo?.addEventListener("click", () => run(marks.past.at(-1).changes.length, (onProgress) => marks.undo(onProgress).result, "as before"));
  byId("lasso-clear").addEventListener("click", () => lasso.select([]));
  listenForKeys(document, { close: () => lasso.select([]) });
}

start(byId("map-box"));
