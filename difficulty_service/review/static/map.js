// The map of images: points on a canvas, in three colourings, with names where the mouse is.

const CLASS_COLOURS = [
  "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1",
  "#9c755f", "#76b7b2", "#d4a72c", "#ff9da7", "#5b6770",
];
const OTHER_COLOUR = "#a8aca5", HARD_COLOUR = "#d75016", CALM_COLOUR = "#8c9892";
const MARGIN = 12, NEAR = 12, GRID = 65535;

function unpack(text, type) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new type(bytes.buffer);
}

function difficultyColour(percentile) {
  const share = percentile < 0.8 ? percentile * 0.15 : 0.12 + (percentile - 0.8) * 4.4;
  const mix = [[140, 215], [152, 80], [146, 22]].map(([calm, hard]) => calm + (hard - calm) * share);
  return `rgb(${mix.map(Math.round).join(",")})`;
}

class ImageMap {
  constructor(data) {
    this.data = data;
    this.positions = unpack(data.positions, Uint16Array);
    this.colours = unpack(data.colours, Uint8Array);
    this.percentiles = unpack(data.percentiles, Uint8Array);
    this.doubtful = unpack(data.doubtful, Uint8Array);
    this.canvas = byId("map-canvas");
    byId("map-box").hidden = false;
    for (const input of document.querySelectorAll("input[name=colour]")) {
      input.addEventListener("change", () => this.draw());
    }
    new ResizeObserver(() => this.draw()).observe(this.canvas.parentElement);
    document.addEventListener("themechange", () => this.draw());
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    if (data.address) this.canvas.addEventListener("click", (event) => this.open(event));
    this.canvas.addEventListener("pointerleave", () => { byId("map-tip").hidden = true; });
  }

  get mode() { return document.querySelector("input[name=colour]:checked").value; }
  get width() { return this.canvas.clientWidth; }
  get height() { return this.canvas.clientHeight; }

  place(index) { return this.placeOf(this.positions[2 * index], this.positions[2 * index + 1]); }

  // Where a position on the map, from 0 to GRID, is on the canvas, and the reverse.
  placeOf(x, y) {
    return [
      MARGIN + (x / GRID) * (this.width - 2 * MARGIN),
      this.height - MARGIN - (y / GRID) * (this.height - 2 * MARGIN),
    ];
  }

  gridAt(left, top) {
    return [
      (GRID * (left - MARGIN)) / (this.width - 2 * MARGIN),
      (GRID * (this.height - MARGIN - top)) / (this.height - 2 * MARGIN),
    ];
  }

  style(index, mode) {
    if (mode === "class") return [CLASS_COLOURS[this.colours[index]] ?? OTHER_COLOUR, 1.7, 0.75];
    if (mode === "doubtful") {
      return this.doubtful[index] ? [HARD_COLOUR, 2.1, 0.9] : [CALM_COLOUR, 1.4, 0.3];
    }
    const percentile = this.percentiles[index] / 255;
    return [difficultyColour(percentile), 1.3 + percentile ** 2, 0.35 + 0.6 * percentile ** 2];
  }

  draw() {
    if (!this.width) return;
    const scale = window.devicePixelRatio || 1, mode = this.mode;
    this.canvas.width = this.width * scale;
    this.canvas.height = this.height * scale;
    const context = this.canvas.getContext("2d");
    context.scale(scale, scale);
    const order = Array.from(this.percentiles, (_, index) => index);
    const rank = mode === "doubtful" ? this.doubtful : this.percentiles;
    if (mode !== "class") order.sort((one, other) => rank[one] - rank[other]);
    for (const index of order) {
      const [colour, radius, opacity] = this.style(index, mode), [x, y] = this.place(index);
      context.globalAlpha = opacity;
      context.fillStyle = colour;
      context.beginPath();
      context.arc(x, y, radius, 0, 7);
      context.fill();
    }
    this.drawKey(mode);
  }

  drawKey(mode) {
    const classes = this.data.classes.map((name, index) => [CLASS_COLOURS[index], name]);
    if (this.data.others) classes.push([OTHER_COLOUR, `the other ${this.data.others} classes`]);
    const entries = {
      class: classes,
      difficulty: [
        [difficultyColour(1), "hardest"],
        [difficultyColour(0.9), "harder than 90 %"],
        [difficultyColour(0.3), "easy"],
      ],
      doubtful: [[HARD_COLOUR, "another class fits better"], [CALM_COLOUR, "own class fits best"]],
    }[mode];
    byId("map-key").replaceChildren(...entries.map(([colour, text]) => {
      const item = document.createElement("li"), label = document.createElement("bdi");
      const dot = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      const circle = document.createElementNS("http://www.w3.org/2000/svg", "circle");
      for (const [name, value] of [["width", 12], ["height", 12]]) dot.setAttribute(name, value);
      for (const [name, value] of [["cx", 6], ["cy", 6], ["r", 5], ["fill", colour]]) {
        circle.setAttribute(name, value);
      }
      dot.append(circle);
      label.textContent = text;
      item.append(dot, label);
      return item;
    }));
  }

  nearest(event) {
    let best = -1, nearest = NEAR ** 2;
    for (let index = 0; index < this.data.ids.length; index += 1) {
      const [x, y] = this.place(index);
      const distance = (x - event.offsetX) ** 2 + (y - event.offsetY) ** 2;
      if (distance < nearest) { nearest = distance; best = index; }
    }
    return best;
  }

  open(event) {
    const index = this.nearest(event);
    if (index >= 0) window.location.assign(`${this.data.address}/${this.data.rows[index]}`);
  }

  picture(row) {
    if (!this.data.address) return document.querySelector(`img[data-row="${row}"]`)?.cloneNode();
    const image = new Image(96, 96);
    image.src = `${this.data.address}/${row}/picture`;
    image.alt = "";
    return image;
  }

  point(event) {
    const best = this.nearest(event);
    const tip = byId("map-tip");
    tip.hidden = best < 0;
    if (best < 0) return;
    const shown = this.picture(this.data.rows[best]);
    const text = document.createElement("span");
    const percent = Math.round(100 * this.percentiles[best] / 255);
    const name = this.data.names[this.data.labels[best]];
    text.textContent = `${name} · harder than ${percent} % · ${this.data.ids[best]}`;
    tip.replaceChildren(...(shown ? [shown] : []), text);
    const within = (offset, room) => `${Math.min(offset + 14, Math.max(0, room - 4))}px`;
    tip.style.left = within(event.offsetX, this.width - tip.offsetWidth);
    tip.style.top = within(event.offsetY, this.height - tip.offsetHeight);
  }
}

if (byId("map-data")) new ImageMap(readJson("map-data"));
