// A line drawn around points of the map selects them.

const OUTSIDE = 9999, MOST_CORNERS = 64;
const SHORTEST = 6, STEP = 3;

// Which points lie inside a polygon; the service decides by the same whole numbers.
export function pointsInside(corners, positions) {
  const inside = [];
  for (let index = 0; 2 * index < positions.length; index += 1) {
    const x = positions[2 * index], y = positions[2 * index + 1];
    let odd = false;
    corners.forEach(([x1, y1], place) => {
      const [x2, y2] = corners[(place + 1) % corners.length];
      const side = (x - x1) * (y2 - y1) - (x2 - x1) * (y - y1);
      if (y1 > y !== y2 > y && side < 0 === y2 > y1) odd = !odd;
    });
    if (odd) inside.push(index);
  }
  return inside;
}

const clamp = (value) => Math.round(Math.min(GRID + OUTSIDE, Math.max(-OUTSIDE, value)));

export class Lasso {
  // Calls onSelect with the corners and the points inside whenever a line is closed.
  constructor(map, overlay, touchButton, onSelect) {
    this.map = map;
    this.overlay = overlay;
    this.touchButton = touchButton;
    this.onSelect = onSelect;
    this.path = null;
    this.corners = [];
    this.selected = [];
    this.isDrag = false;
    const { canvas } = map;
    canvas.addEventListener("pointerdown", (event) => this.begin(event));
    // Before the map's own listeners, which show the point below and open its page.
    canvas.addEventListener("pointermove", (event) => this.extend(event), true);
    canvas.addEventListener("click", (event) => {
      if (this.isDrag) event.stopImmediatePropagation();
      this.isDrag = false;
    }, true);
    canvas.addEventListener("pointerup", () => this.close());
    canvas.addEventListener("pointercancel", () => { this.path = null; this.draw(); });
    touchButton.addEventListener("click", () => {
      const isOn = touchButton.getAttribute("aria-pressed") !== "true";
      touchButton.setAttribute("aria-pressed", String(isOn));
      canvas.classList.toggle("lassoing", isOn);
    });
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
    document.addEventListener("themechange", () => this.draw());
  }

  begin(event) {
    const isAllowed = event.pointerType !== "touch" || this.touchButton.getAttribute("aria-pressed") === "true";
    this.isDrag = false;
    if (event.button !== 0 || !event.isPrimary || !isAllowed) return;
    this.path = [[event.offsetX, event.offsetY]];
    this.map.canvas.setPointerCapture(event.pointerId);
  }

  extend(event) {
    if (!this.path) return;
    const [x, y] = this.path.at(-1);
    const distance = Math.hypot(event.offsetX - x, event.offsetY - y);
    if (!this.isDrag && distance < SHORTEST) return;
    this.isDrag = true;
    event.stopImmediatePropagation();
    byId("map-tip").hidden = true;
    if (distance < STEP) return;
    this.path.push([event.offsetX, event.offsetY]);
    this.draw();
  }

  close() {
    const { path } = this;
    this.path = null;
    if (!path || path.length < 3) return;
    const every = Math.max(1, path.length / MOST_CORNERS);
    const kept = Array.from({ length: Math.min(path.length, MOST_CORNERS) }, (_, place) => path[Math.floor(place * every)]);
    this.select(kept.map(([x, y]) => this.map.gridAt(x, y).map(clamp)));
  }

  select(corners) {
    this.corners = corners;
    this.selected = corners.length ? pointsInside(corners, this.map.positions) : [];
    this.draw();
    this.onSelect(corners, this.selected);
  }

  draw() {
    const scale = window.devicePixelRatio || 1, { map, overlay } = this;
    if (!map.width) return;
    overlay.width = map.width * scale;
    overlay.height = map.height * scale;
    const context = overlay.getContext("2d");
    context.scale(scale, scale);
    context.strokeStyle = getComputedStyle(overlay).color;
    for (const index of this.selected) {
      const [x, y] = map.place(index);
      context.beginPath();
      context.arc(x, y, 3.5, 0, 7);
      context.stroke();
    }
    const line = this.path ?? this.corners.map(([x, y]) => map.placeOf(x, y));
    if (line.length < 2) return;
    context.lineWidth = 1.5;
    context.setLineDash([5, 4]);
    context.beginPath();
    line.forEach(([x, y]) => context.lineTo(x, y));
    if (!this.path) context.closePath();
    context.stroke();
  }
}
