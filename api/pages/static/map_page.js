// The page of the map: fetches the points, draws them, and marks those in the lasso.

import { BulkMarks } from "./bulk_marks.js";
import { Lasso } from "./lasso.js";

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
  const bulk = new BulkMarks(box.dataset.job);
  const [panel, text, show, progress, undo] = ["lasso", "lasso-text", "lasso-show", "lasso-progress", "lasso-undo"].map(byId);
  const say = (sentence) => {
    text.textContent = sentence;
    byId("announcer").textContent = sentence;
  };
  const lasso = new Lasso(map, byId("lasso-canvas"), byId("lasso-touch"), (corners, selected) => {
    panel.hidden = corners.length === 0 && bulk.past.length === 0;
    panel.classList.toggle("none", selected.length === 0);
    say(selected.length ? `${count(selected.length)} in the lasso` : "No image is in the lasso.");
    show.href = `${map.data.address}?area=${corners.flat().join("_")}`;
  });

  const run = async (number, work, told) => {
    const buttons = [...panel.querySelectorAll("button")];
    for (const button of buttons) button.disabled = true;
    progress.value = 0;
    progress.hidden = false;
    const { done, failed, reason } = await work((share) => { progress.value = share; });
    progress.hidden = true;
    for (const button of buttons) button.disabled = false;
    if (undo) undo.hidden = bulk.past.length === 0;
    const same = number - done.length - failed;
    say([
      done.length ? `${count(done.length)} ${told}.` : "",
      same ? `${count(same)} ${same === 1 ? "was" : "were"} so already.` : "",
      failed ? `${count(failed)} could not be changed: ${reason}. Try again.` : "",
    ].join(" ").trim());
  };

  // The mark of each point, or undefined for a point that it does not apply to.
  const decisions = (kind) => {
    const { labels, names, nearest } = map.data;
    if (kind === "relabel") {
      return (index) => (nearest[index] >= 0 && nearest[index] !== labels[index]
        ? { mark: "relabel", label: names[nearest[index]] } : undefined);
    }
    if (kind === "relabel-as") {
      const label = byId("lasso-class").value;
      return () => (label ? { mark: "relabel", label } : undefined);
    }
    return () => (kind === "none" ? null : { mark: kind, label: null });
  };

  panel.addEventListener("click", (event) => {
    const { kind } = event.target.closest("[data-kind]")?.dataset ?? {};
    if (!kind) return;
    const decide = decisions(kind);
    const marks = new Map(lasso.selected.map((index) => [map.data.rows[index], decide(index)]).filter(([, mark]) => mark !== undefined));
    if (!marks.size) {
      if (kind === "relabel-as") byId("lasso-class").focus();
      say(kind === "relabel" ? "No other class fits any of these images better." : "Choose a class first.");
      return;
    }
    run(marks.size, (onProgress) => bulk.mark([...marks.keys()], (row) => marks.get(row), onProgress), DONE[kind.split("-")[0]]);
  });
  undo?.addEventListener("click", () => run(bulk.past.at(-1).length, (onProgress) => bulk.undo(onProgress), "as before"));
  byId("lasso-clear").addEventListener("click", () => lasso.select([]));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !document.querySelector("dialog[open]")) lasso.select([]);
  });
}

start(byId("map-box"));
