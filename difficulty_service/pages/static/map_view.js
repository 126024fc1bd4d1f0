// Which part of a map is seen, and how it is moved: by wheel, pinch, drag, buttons and keys.

import { byId } from "./page.js";

export const GRID = 65535;
const MARGIN = 12, MOST_ZOOM = 400;
const STEP = 1.5, MOVE = 0.2, SHORTEST_DRAG = 5;

export class MapView {
  constructor() { Object.assign(this, { zoom: 1, left: 0, bottom: 0, width: 0, height: 0 }); }

  // Position from 0 to 1 of the corner and size of the whole map, in pixels from the lower left.
  get place() {
    const across = this.zoom * (this.width - 2 * MARGIN), up = this.zoom * (this.height - 2 * MARGIN);
    return [MARGIN - this.left * across, MARGIN - this.bottom * up, across, up];
  }

  // Where a position on the map, from 0 to GRID, is on the canvas, and the reverse.
  placeOf(x, y) {
    const [left, bottom, across, up] = this.place;
    return [left + (x / GRID) * across, this.height - bottom - (y / GRID) * up];
  }

  gridAt(x, y) {
    const [left, bottom, across, up] = this.place;
    return [(GRID * (x - left)) / across, (GRID * (this.height - bottom - y)) / up];
  }

  // Keeps what is at a point of the canvas there.
  zoomAt(x, y, factor) {
    const [gridX, gridY] = this.gridAt(x, y);
    this.zoom = Math.min(MOST_ZOOM, Math.max(1, this.zoom * factor));
    const [nowX, nowY] = this.gridAt(x, y);
    this.moveTo(this.left + (gridX - nowX) / GRID, this.bottom + (gridY - nowY) / GRID);
  }

  pan(x, y) {
    const [, , across, up] = this.place;
    this.moveTo(this.left - x / across, this.bottom + y / up);
  }

  // Never past the sides of the map.
  moveTo(left, bottom) {
    const most = 1 - 1 / this.zoom;
    this.left = Math.min(most, Math.max(0, left));
    this.bottom = Math.min(most, Math.max(0, bottom));
  }

  whole() { Object.assign(this, { zoom: 1, left: 0, bottom: 0 }); }
}

// Moves a view. `lasso`, where there is one, takes the drags that it `wants`.
export class MapGestures {
  // Calls `onChange` after each change. A wheel scrolls the page instead of a map that is only a part
  // of it (`isPart`), unless the map has the focus or Ctrl is held, as in a pinch of a touchpad.
  constructor(canvas, view, onChange, { isPart = false } = {}) {
    Object.assign(this, { canvas, view, onChange, isPart, lasso: null, pointers: new Map(), drag: null, isSpace: false, wasDrag: false });
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    // Before the map's own listeners, which show the point below and open its page.
    canvas.addEventListener("pointermove", (event) => this.move(event), true);
    for (const kind of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(kind, (event) => this.up(event, kind === "pointercancel"));
    }
    canvas.addEventListener("click", (event) => {
      if (this.wasDrag) event.stopImmediatePropagation();
      this.wasDrag = false;
    }, true);
    canvas.addEventListener("keydown", (event) => this.press(event));
    canvas.addEventListener("keyup", (event) => { if (event.key === " ") this.isSpace = false; });
    canvas.addEventListener("blur", () => { this.isSpace = false; });
    const buttons = { "map-in": () => this.zoomBy(STEP), "map-out": () => this.zoomBy(1 / STEP), "map-whole": () => this.showWhole() };
    for (const [id, act] of Object.entries(buttons)) byId(id).addEventListener("click", act);
    this.tell();
  }

  tell() {
    // One finger scrolls the page, until there is something to move to.
    this.canvas.classList.toggle("zoomed", this.view.zoom > 1);
    byId("map-out").disabled = this.view.zoom <= 1;
    byId("map-whole").disabled = this.view.zoom <= 1;
    byId("map-in").disabled = this.view.zoom >= MOST_ZOOM;
    this.onChange();
  }

  zoomBy(factor, x = this.view.width / 2, y = this.view.height / 2) {
    this.view.zoomAt(x, y, factor);
    this.tell();
  }

  showWhole() {
    this.view.whole();
    this.tell();
  }

  wheel(event) {
    const isOut = event.deltaY > 0, isPinch = event.ctrlKey;
    if (this.isPart && !isPinch && document.activeElement !== this.canvas) return;
    if (isOut && this.view.zoom <= 1 && !isPinch) return;  // scrolls the page
    event.preventDefault();
    const pixels = event.deltaY * [1, 16, 400][event.deltaMode];
    this.zoomBy(Math.exp(-Math.max(-300, Math.min(300, pixels)) * (isPinch ? 0.01 : 0.002)), event.offsetX, event.offsetY);
  }

  down(event) {
    const at = [event.offsetX, event.offsetY];
    this.wasDrag = false;
    if (event.pointerType === "touch") this.pointers.set(event.pointerId, at);
    if (this.pointers.size === 2) {
      if (this.drag === "lasso") this.lasso.cancel();
      this.drag = "pinch";
      return;
    }
    const isMiddle = event.button === 1;
    if (!event.isPrimary || (event.button !== 0 && !isMiddle)) return;
    if (!isMiddle && !this.isSpace && this.lasso?.wants(event)) {
      this.drag = "lasso";
      this.lasso.begin(event);
    } else if (event.pointerType !== "touch" || this.view.zoom > 1) {
      this.drag = "pan";
    } else return;
    this.from = at;
    if (isMiddle) event.preventDefault();  // no scrolling by the middle button
    this.canvas.setPointerCapture(event.pointerId);
  }

  move(event) {
    if (!this.drag) return;
    const at = [event.offsetX, event.offsetY], before = this.pointers.get(event.pointerId);
    if (before) this.pointers.set(event.pointerId, at);
    if (this.drag === "pinch") {
      const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1];
      if (!before || !other) return;
      this.wasDrag = true;
      const spread = (point) => Math.max(1, Math.hypot(point[0] - other[0], point[1] - other[1]));
      this.view.pan((at[0] - before[0]) / 2, (at[1] - before[1]) / 2);
      this.zoomBy(spread(at) / spread(before), (at[0] + other[0]) / 2, (at[1] + other[1]) / 2);
      event.stopImmediatePropagation();
      return;
    }
    const [x, y] = this.from;
    if (!this.wasDrag && Math.hypot(at[0] - x, at[1] - y) < SHORTEST_DRAG) return;
    this.wasDrag = true;
    byId("map-tip").hidden = true;
    event.stopImmediatePropagation();
    if (this.drag === "lasso") this.lasso.extend(event);
    else {
      this.from = at;
      this.view.pan(at[0] - x, at[1] - y);
      this.canvas.classList.add("moving");
      this.tell();
    }
  }

  up(event, isCancelled) {
    this.pointers.delete(event.pointerId);
    this.canvas.classList.remove("moving");
    if (this.drag === "lasso") {
      if (isCancelled) this.lasso.cancel();
      else this.lasso.close();
    }
    if (this.drag === "pinch" && this.pointers.size) return;
    this.drag = null;
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { view } = this, across = MOVE * view.width, up = MOVE * view.height;
    const act = {
      "+": () => this.zoomBy(STEP), "=": () => this.zoomBy(STEP), "-": () => this.zoomBy(1 / STEP), _: () => this.zoomBy(1 / STEP),
      0: () => this.showWhole(),
      ArrowLeft: () => this.panBy(across, 0), ArrowRight: () => this.panBy(-across, 0),
      ArrowUp: () => this.panBy(0, up), ArrowDown: () => this.panBy(0, -up),
      " ": () => { this.isSpace = true; },
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  panBy(x, y) {
    this.view.pan(x, y);
    this.tell();
  }
}
