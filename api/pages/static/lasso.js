// Lines drawn around points of the map select them, add to the selection, or take points out.

import { GRID } from "./report/map_view.js";

const OUTSIDE = 9999, MOST_POLYGONS = 8, MOST_CORNERS = 40;
const STEP_OF_LINE = 3;

// Which points lie inside a polygon; the service decides by the same whole numbers.
export function isInside(corners, positions) {
  const inside = new Uint8Array(positions.length / 2);
  const [xs, ys] = [0, 1].map((part) => corners.map((corner) => corner[part]));
  const left = Math.min(...xs), right = Math.max(...xs), low = Math.min(...ys), high = Math.max(...ys);
  for (let index = 0; index < inside.length; index += 1) {
    const x = positions[2 * index], y = positions[2 * index + 1];
    if (x < left || x > right || y < low || y > high) continue;
    let odd = false;
    for (let place = 0, last = xs.length - 1; place < xs.length; last = place, place += 1) {
      const x1 = xs[last], y1 = ys[last], x2 = xs[place], y2 = ys[place];
      const side = (x - x1) * (y2 - y1) - (x2 - x1) * (y - y1);
      if (y1 > y !== y2 > y && side < 0 === y2 > y1) odd = !odd;
    }
    inside[index] = odd;
  }
  return inside;
}

// The points of several polygons, each of which adds to those before or removes some.
export function pointsOf(polygons, positions) {
  const selected = new Uint8Array(positions.length / 2);
  for (const { corners, kind } of polygons) {
    const inside = isInside(corners, positions);
    for (let index = 0; index < inside.length; index += 1) {
      if (inside[index]) selected[index] = kind === "remove" ? 0 : 1;
    }
  }
  const found = new Uint32Array(selected.reduce((sum, each) => sum + each, 0));
  let number = 0;
  for (let index = 0; index < selected.length; index += 1) if (selected[index]) found[number++] = index;
  return found;
}

// The value of the parameter `area` of the list of images.
export function areaOf(polygons, layout) {
  const parts = polygons.map(({ corners, kind }) => (kind === "remove" ? "not_" : "") + corners.flat().join("_"));
  return [...(layout === "tsne" ? ["tsne"] : []), ...parts].join("~");
}

// A line with at most so many corners: the one that changes it least is left out, again and again.
export function simplified(line, most) {
  const kept = [...line];
  const area = (place) => {
    const [[x1, y1], [x2, y2], [x3, y3]] = [-1, 0, 1].map((step) => kept[(place + step + kept.length) % kept.length]);
    return Math.abs((x2 - x1) * (y3 - y1) - (x3 - x1) * (y2 - y1));
  };
  while (kept.length > most) {
    let least = 0;
    for (let place = 1; place < kept.length; place += 1) if (area(place) < area(least)) least = place;
    kept.splice(least, 1);
  }
  return kept;
}

const clamp = (value) => Math.round(Math.min(GRID + OUTSIDE, Math.max(-OUTSIDE, value)));

export class Lasso {
  // Calls onSelect with the polygons and the points whenever they change, and `refuse` with a sentence.
  constructor(map, overlay, button, kinds, onSelect, refuse) {
    Object.assign(this, { map, overlay, button, kinds, onSelect, refuse, line: null, polygons: [], past: [], selected: new Uint32Array(0) });
    button.addEventListener("click", () => {
      const isOn = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(isOn));
      map.canvas.classList.toggle("lassoing", isOn);
      kinds.hidden = !isOn;
    });
    map.gestures.lasso = this;
    map.drawing.afterDraw = () => this.draw();
  }

  get isOn() { return this.button.getAttribute("aria-pressed") === "true"; }

  // Whether a drag that begins draws a line: with the Lasso, or with Shift to add and Alt to remove.
  wants(event) { return event.button === 0 && (this.isOn || event.shiftKey || event.altKey); }

  begin(event) {
    const kind = this.isOn ? this.kinds.querySelector("input:checked").value : "add";
    this.kind = event.altKey ? "remove" : event.shiftKey ? "add" : kind;
    this.line = [[event.offsetX, event.offsetY]];
  }

  extend(event) {
    const [x, y] = this.line.at(-1);
    if (Math.hypot(event.offsetX - x, event.offsetY - y) < STEP_OF_LINE) return;
    this.line.push([event.offsetX, event.offsetY]);
    this.draw();
  }

  cancel() {
    this.line = null;
    this.draw();
  }

  close() {
    const { line, kind } = this;
    this.line = null;
    if (line.length < 3) {
      this.draw();
      return;
    }
    const corners = simplified(line, MOST_CORNERS).map(([x, y]) => this.map.view.gridAt(x, y).map(clamp));
    const before = kind === "new" ? [] : this.polygons;
    if (before.length >= MOST_POLYGONS) {
      this.draw();
      this.refuse(`A selection has at most ${MOST_POLYGONS} lines. Mark these images first, or clear the lasso.`);
      return;
    }
    this.set([...before, { corners, kind: kind === "remove" ? "remove" : "add" }]);
  }

  set(polygons, past = [...this.past, this.polygons]) {
    Object.assign(this, { polygons, past, selected: pointsOf(polygons, this.map.points.positions) });
    this.map.drawing.ring(this.selected);
    this.onSelect(this.polygons, this.selected);
  }

  back() { if (this.past.length) this.set(this.past.at(-1), this.past.slice(0, -1)); }

  clear() { this.set([]); }

  // Forgets lines of another layout.
  reset() { this.set([], []); }

  draw() {
    const scale = window.devicePixelRatio || 1, { map, overlay } = this;
    if (!map.view.width) return;
    overlay.width = map.view.width * scale;
    overlay.height = map.view.height * scale;
    const context = overlay.getContext("2d");
    context.scale(scale, scale);
    context.strokeStyle = getComputedStyle(overlay).color;
    context.lineWidth = 1.5;
    const stroke = (line, kind, isClosed) => {
      context.setLineDash(kind === "remove" ? [1.5, 4] : [5, 4]);
      context.beginPath();
      for (const [x, y] of line) context.lineTo(x, y);
      if (isClosed) context.closePath();
      context.stroke();
    };
    for (const { corners, kind } of this.polygons) stroke(corners.map(([x, y]) => map.view.placeOf(x, y)), kind, true);
    if (this.line) stroke(this.line, this.kind, false);
  }
}
