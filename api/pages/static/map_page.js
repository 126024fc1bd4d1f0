// The page of the map: draws the points, and shows and marks those in the lasso.

import { Lasso, areaOf } from "./lasso.js";
import { MapColumns } from "./map_columns.js";
import { Layouts } from "./map_layouts.js";
import { RestMarks } from "./rest_marks.js";
import { classNames } from "./review_page.js";
import { ClassChoice } from "./report/class_choice.js";
import { listenForKeys } from "./report/keys.js";
import { ImageMap } from "./report/map.js";
import { markColumn, MARKS } from "./report/map_colours.js";
import { NO_LEVEL } from "./report/map_data.js";
import { isSame, Marks } from "./report/marks.js";
import { byId } from "./report/page.js";

const count = (number) => number.toLocaleString("en");
const inWords = (mark) => (mark === "none" ? "without a mark now" : `marked ${mark}`);
const MOST_PICTURES = 24;

async function start(box) {
  const status = byId("map-status"), first = status.textContent;
  const layouts = new Layouts(box.dataset.map, box.dataset.tsne, (sentence) => { status.textContent = sentence; });
  const points = await layouts.first();
  if (!points) return;
  const map = new ImageMap(points);
  status.textContent = first;
  const columns = new MapColumns(box.dataset.map, map, (sentence) => { status.textContent = sentence; });
  startSelection(box, map, layouts, columns);
  await layouts.start(map);
}

// Stored marks, which colour the map.
class MapMarks extends RestMarks {
  constructor(job, map) {
    super(job);
    this.map = map;
    this.marked = null;
    for (const input of document.querySelectorAll("input[name=colour]")) {
      input.addEventListener("change", () => { if (input.value === "mark") this.load(); });
    }
  }

  show(row, mark) {
    if (!this.marked) return;
    this.marked.set(row, mark?.mark);
    clearTimeout(this.painting);
    this.painting = setTimeout(() => this.paint());
  }

  async load() {
    if (!this.marked) {
      const known = await this.known(0, Infinity).catch(() => new Map());
      this.marked = new Map([...known].map(([row, { mark }]) => [row, mark]));
    }
    this.paint();
  }

  paint() {
    if (!this.marked) return;
    const { points } = this.map, values = new Uint8Array(points.count);
    for (const [row, mark] of this.marked) {
      const index = points.indexOf(row);
      if (index !== undefined) values[index] = Math.max(0, MARKS.indexOf(mark));
    }
    this.map.setColumn("mark", markColumn(values));
  }
}

// The hardest of the points, at most so many.
function hardest(selected, percentiles, most) {
  const level = (index) => (percentiles[index] === NO_LEVEL ? -1 : percentiles[index]);
  return Array.from(selected).sort((one, other) => level(other) - level(one)).slice(0, most);
}

function showPictures(list, { points }, shown) {
  list.replaceChildren(...shown.map((index) => {
    const item = document.createElement("li"), link = document.createElement("a"), image = new Image(64, 64);
    const row = points.rowOf(index);
    image.loading = "lazy";
    image.alt = `${points.nameOf(points.columns.labels[index])}, row ${row}`;
    image.src = `${points.address}/${row}/picture`;
    link.href = `${points.address}/${row}`;
    link.append(image);
    item.append(link);
    return item;
  }));
}

function startSelection(box, map, layouts, columns) {
  const choice = byId("lasso-class") && new ClassChoice(byId("lasso-class"), classNames, () => {}, { isFree: true });
  const store = new MapMarks(box.dataset.job, map), marks = new Marks(store);
  const [panel, text, show, progress, undo, back] = ["lasso", "lasso-text", "lasso-show", "lasso-progress", "lasso-undo", "lasso-back"].map(byId);
  const say = (sentence) => {
    text.textContent = sentence;
    byId("announcer").textContent = sentence;
  };
  const lasso = new Lasso(map, byId("lasso-canvas"), byId("lasso-touch"), byId("lasso-kinds"), (polygons, selected) => {
    panel.hidden = polygons.length === 0 && lasso.past.length === 0 && marks.past.length === 0;
    panel.classList.toggle("none", selected.length === 0);
    back.disabled = lasso.past.length === 0;
    byId("lasso-clear").disabled = polygons.length === 0;
    say(selected.length ? `${count(selected.length)} in the lasso` : "No image is in the lasso.");
    const shown = hardest(selected, map.points.columns.percentiles, MOST_PICTURES);
    byId("lasso-shown").textContent = shown.length < selected.length ? `The ${shown.length} hardest of them:` : "";
    showPictures(byId("lasso-pictures"), map, shown);
    show.href = `${map.points.address}?area=${areaOf(polygons, layouts.current)}`;
  }, say);
  layouts.isBusy = () => lasso.polygons.length > 0 || lasso.line !== null;
  layouts.onChange = () => {
    lasso.reset();
    store.paint();
    columns.paint();
  };
  back.addEventListener("click", () => lasso.back());

  const run = async (number, work, told) => {
    const buttons = [...panel.querySelectorAll("button")];
    for (const button of buttons) button.disabled = true;
    progress.value = 0;
    progress.hidden = false;
    const { done, reason, same = 0 } = await work((share) => { progress.value = share; })
      .catch((error) => ({ done: [], reason: error.message }));
    progress.hidden = true;
    for (const button of buttons) button.disabled = false;
    back.disabled = lasso.past.length === 0;
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
    const { names, columns: { labels, nearest } } = map.points;
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
    const wanted = new Map(Array.from(lasso.selected, (index) => [map.points.rowOf(index), decide(index)]).filter(([, mark]) => mark !== undefined));
    if (!wanted.size) {
      if (kind === "relabel-as") byId("lasso-class").focus();
      say(kind === "relabel" ? "No other class fits any of these images better." : "Choose a class first.");
      return;
    }
    run(wanted.size, (onProgress) => give(wanted, onProgress), inWords(kind.split("-")[0]));
  });
  undo?.addEventListener("click", () => run(marks.past.at(-1).changes.length, (onProgress) => marks.undo(onProgress).result, "as before"));
  byId("lasso-clear").addEventListener("click", () => lasso.clear());
  listenForKeys(document, { close: () => { if (lasso.polygons.length) lasso.clear(); } });
}

start(byId("map-box"));
