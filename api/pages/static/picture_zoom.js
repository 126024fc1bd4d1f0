// The picture of one image from near: the wheel and the buttons zoom it, dragging moves it.

const STEP = 1.5, MOST = 32;

export class PictureZoom {
  // `box` shows the picture as a square; `tools` are its buttons, by what they do.
  constructor(box, tools) {
    Object.assign(this, { box, tools, picture: box.querySelector("img"), scale: 1, x: 0, y: 0 });
    tools.hidden = false;
    tools.addEventListener("click", (event) => this.press(event.target.closest("[data-zoom]")?.dataset.zoom));
    box.addEventListener("wheel", (event) => this.turn(event), { passive: false });
    box.addEventListener("pointerdown", (event) => this.begin(event));
    box.addEventListener("pointermove", (event) => this.move(event));
    for (const end of ["pointerup", "pointercancel"]) box.addEventListener(end, () => { this.dragged = null; });
    this.draw();
  }

  get side() { return this.box.clientWidth; }

  // The scale at which a pixel of the image is one of the page.
  get whole() {
    const { naturalWidth, naturalHeight } = this.picture;
    return Math.max(1, naturalWidth, naturalHeight) / this.side;
  }

  async press(what) {
    const middle = this.side / 2;
    if (what === "fit") this.zoom(1, 0, 0);
    else if (what === "in" || what === "out") this.zoom(this.scale * (what === "in" ? STEP : 1 / STEP), middle, middle);
    else if (what === "whole") {
      await this.load();
      this.zoom(this.whole, middle, middle);
    }
  }

  // At the usual scale, turning the wheel back scrolls the page.
  turn(event) {
    if (event.deltaY === 0 || (event.deltaY > 0 && this.scale <= 1)) return;
    event.preventDefault();
    const { left, top } = this.box.getBoundingClientRect();
    this.zoom(this.scale * STEP ** (-Math.sign(event.deltaY) / 2), event.clientX - left, event.clientY - top);
  }

  begin(event) {
    if (this.scale <= 1 || event.button !== 0) return;
    event.preventDefault();
    this.dragged = [event.clientX - this.x, event.clientY - this.y];
    this.box.setPointerCapture(event.pointerId);
  }

  move(event) {
    if (!this.dragged) return;
    this.x = event.clientX - this.dragged[0];
    this.y = event.clientY - this.dragged[1];
    this.draw();
  }

  // What is at a place of the box stays there. Small pictures may be shown smaller than the box.
  zoom(scale, left, top) {
    const before = this.scale;
    this.scale = Math.min(MOST, Math.max(Math.min(1, this.whole), scale));
    this.x = left - (left - this.x) * (this.scale / before);
    this.y = top - (top - this.y) * (this.scale / before);
    if (this.scale > 1) this.load();
    this.draw();
  }

  // Fetches the picture in its own size, once.
  load() {
    this.loading ??= new Promise((resolve) => {
      const large = new Image();
      large.addEventListener("load", () => {
        this.picture.src = large.src;
        this.picture.decode().catch(() => {}).then(resolve);
      });
      large.addEventListener("error", resolve);  // the small one stays
      large.src = this.box.dataset.whole;
    });
    return this.loading;
  }

  draw() {
    const room = this.side * (1 - this.scale);
    const within = (offset) => (room < 0 ? Math.min(0, Math.max(room, offset)) : room / 2);
    [this.x, this.y] = [within(this.x), within(this.y)];
    this.picture.style.transform = this.scale === 1 ? "" : `translate(${this.x}px, ${this.y}px) scale(${this.scale})`;
    this.box.classList.toggle("zoomed", this.scale > 1);
    this.tools.querySelector("[data-zoom=fit]").disabled = this.scale === 1;
  }
}
