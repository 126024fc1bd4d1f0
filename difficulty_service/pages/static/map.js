// The map of images: points in the colours of a column, with names where the mouse is.

import { besideColumn, colourBy, columnsOf, paintLevels, unpackColumn } from "./map_colours.js";
import { LEVELS, MapPoints, NO_LEVEL } from "./map_data.js";
import { PointCanvas } from "./map_points.js";
import { GRID, MapGestures, MapView } from "./map_view.js";
import { byId, readJson } from "./page.js";

const NEAR = 12, RADIUS = 1.9, SMALLEST_RADIUS = 0.7, MANY = 20_000, LARGEST = 3;
const WAIT_FOR_ID = 120;

export class ImageMap {
  constructor(points, { isPart = false } = {}) {
    this.canvas = byId("map-canvas");
    byId("map-box").hidden = false;
    Object.assign(this, { view: new MapView(), chosen: {}, extra: {}, ids: new Map() });
    this.drawing = new PointCanvas(this.canvas, (width, height) => {
      Object.assign(this.view, { width, height });
      this.show();
    });
    this.setPoints(points);
    this.drawing.measure();
    this.gestures = new MapGestures(this.canvas, this.view, () => this.show(), { isPart });
    for (const input of document.querySelectorAll("input[name=colour]")) {
      input.addEventListener("change", () => this.recolour());
    }
    document.addEventListener("themechange", () => this.drawing.redraw());
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    if (points.address) this.canvas.addEventListener("click", (event) => this.open(event));
    this.canvas.addEventListener("pointerleave", () => { byId("map-tip").hidden = true; });
    byId("map-key").addEventListener("click", (event) => this.toggle(event.target.closest("button")?.dataset.category));
    byId("map-pick")?.addEventListener("change", (event) => {
      this.toggle(event.target.value);
      event.target.value = "";
    });
  }

  get mode() { return document.querySelector("input[name=colour]:checked").value; }

  // Other points of the same images; zoom and colours stay.
  setPoints(points) {
    this.points = points;
    this.columns = columnsOf(points);
    this.drawing.place(points.positions);
    this.recolour();
  }

  // Offers a column that the page has computed or fetched; see `colourBy`. Its values are of points.
  setColumn(name, column) {
    this.extra[name] = column;
    if (this.mode === name) this.recolour();
  }

  recolour() {
    const { mode } = this, column = this.extra[mode] ?? this.columns[mode];
    if (!column) return;  // it is being fetched
    const chosen = (this.chosen[mode] ??= new Set()), coloured = colourBy(column, chosen);
    this.drawing.paint(...paintLevels(coloured));
    this.writeKey(coloured.key, chosen);
    this.offerOthers(column, coloured.key, mode);
  }

  show() {
    const few = Math.min(1, (MANY / this.points.count) ** 0.25);
    const radius = Math.max(SMALLEST_RADIUS, RADIUS * few) * Math.min(LARGEST, this.view.zoom ** 0.35);
    this.drawing.show(this.view.place, radius);
  }

  // Highlights a category, or no longer; without any, all have their colours.
  toggle(text) {
    if (text === undefined || text === "") return;
    const category = Number(text), chosen = this.chosen[this.mode];
    if (!chosen.delete(category)) chosen.add(category);
    this.recolour();
    byId("map-key").querySelector(`[data-category="${category}"]`)?.focus();
  }

  writeKey(entries, chosen) {
    byId("map-key").replaceChildren(...entries.map(({ colour, text, category }) => {
      const item = document.createElement("li"), label = document.createElement("bdi");
      const dot = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      const circle = document.createElementNS("http://www.w3.org/2000/svg", "circle");
      for (const [name, value] of [["width", 12], ["height", 12]]) dot.setAttribute(name, value);
      for (const [name, value] of [["cx", 6], ["cy", 6], ["r", 5], ["fill", colour]]) circle.setAttribute(name, value);
      dot.append(circle);
      label.textContent = text;
      const box = category === undefined ? item : document.createElement("button");
      box.append(dot, label);
      if (box !== item) {
        box.type = "button";
        box.dataset.category = category;
        box.setAttribute("aria-pressed", String(chosen.has(category)));
        item.append(box);
      }
      return item;
    }));
  }

  // A list of the categories that the key does not have.
  offerOthers({ names, shown }, key, mode) {
    const pick = byId("map-pick"), box = byId("map-pick-box"), known = new Set(key.map(({ category }) => category));
    const others = names && !shown ? Object.keys(names).map(Number).filter((each) => !known.has(each)) : [];
    box.hidden = others.length === 0;
    const state = `${mode} ${[...known].join(" ")}`;
    if (pick.dataset.state === state) return;
    pick.dataset.state = state;
    others.sort((one, other) => names[one].localeCompare(names[other], undefined, { numeric: true }));
    pick.replaceChildren(new Option("Highlight …", ""), ...others.map((each) => new Option(names[each], each)));
  }

  nearest(event) {
    const { positions, count } = this.points, [left, bottom, across, up] = this.view.place;
    const x = (event.offsetX - left) / across * GRID, y = (this.view.height - bottom - event.offsetY) / up * GRID;
    const wide = across / GRID, high = up / GRID;
    let best = -1, nearest = NEAR ** 2;
    for (let index = 0; index < count; index += 1) {
      const right = (positions[2 * index] - x) * wide, above = (positions[2 * index + 1] - y) * high;
      const distance = right * right + above * above;
      if (distance < nearest) { nearest = distance; best = index; }
    }
    return best;
  }

  open(event) {
    const index = this.nearest(event);
    if (index >= 0) window.location.assign(`${this.points.address}/${this.points.rowOf(index)}`);
  }

  picture(row) {
    if (!this.points.address) return document.querySelector(`img[data-row="${row}"]`)?.cloneNode();
    const image = new Image(96, 96);
    image.src = `${this.points.address}/${row}/picture`;
    image.alt = "";
    return image;
  }

  // The id of an image, which a service is asked for once the mouse rests.
  async idOf(index) {
    const { points, ids } = this, row = points.rowOf(index);
    if (points.ids) return points.ids[index];
    if (!ids.has(row)) {
      await new Promise((resolve) => { setTimeout(resolve, WAIT_FOR_ID); });
      if (this.pointed !== index) return "";
      const answer = await fetch(points.address.replace(/images$/, `map/ids/${row}`)).catch(() => null);
      if (answer?.ok) ids.set(row, await answer.json());
    }
    return ids.get(row) ?? "";
  }

  point(event) {
    const best = this.nearest(event), tip = byId("map-tip"), { points } = this;
    tip.hidden = best < 0;
    if (best < 0) {
      this.pointed = -1;
      return;
    }
    if (this.pointed !== best) {
      this.pointed = best;
      const shown = this.picture(points.rowOf(best)), text = document.createElement("span");
      const level = points.columns.percentiles[best];
      const harder = level === NO_LEVEL ? "no score" : level === LEVELS ? "among the hardest" : `harder than ${Math.floor((100 * level) / LEVELS)} %`;
      text.textContent = `${points.nameOf(points.columns.labels[best])} · ${harder}`;
      tip.replaceChildren(...(shown ? [shown] : []), text);
      this.idOf(best).then((id) => { if (id && this.pointed === best) text.textContent += ` · ${id}`; });
    }
    const within = (offset, room) => `${Math.min(offset + 14, Math.max(0, room - 4))}px`;
    tip.style.left = within(event.offsetX, this.view.width - tip.offsetWidth);
    tip.style.top = within(event.offsetY, this.view.height - tip.offsetHeight);
  }
}

if (byId("map-data")) {
  const data = readJson("map-data"), map = new ImageMap(MapPoints.fromJson(data), { isPart: true });
  data.beside.forEach((column, place) => map.setColumn(`column-${place + 1}`, besideColumn(unpackColumn(column))));
}
