// A mouse that is dragged over a grid selects the cards that it touches. Fingers and pens scroll.

const FIRST_MOVE = 5;  // CSS pixels, below which it is a click
const EDGE = 72, FASTEST = 20;  // CSS pixels: where the page scrolls, and by how many a frame

export class RubberBand {
  constructor(grid) {
    Object.assign(this, { grid, drag: null });
    grid.place.addEventListener("pointerdown", (event) => this.press(event));
    // The browser would drag the picture or the link away.
    grid.place.addEventListener("dragstart", (event) => { if (this.drag) event.preventDefault(); });
  }

  press(event) {
    const { target, pointerId, pageX, pageY } = event;
    if (event.pointerType !== "mouse" || event.button !== 0 || !target.closest(".grid")) return;
    if (target.closest(".caption, .pick, .pick-row, .more")) return;
    const isAdding = event.shiftKey || event.ctrlKey || event.metaKey, { selected } = this.grid;
    const listening = new AbortController();
    // `kept` stays selected whatever is touched, `before` comes back where the drag is given up.
    this.drag = { pointerId, pageX, pageY, before: selected, kept: isAdding ? selected : [], touched: [], listening };
    const listen = (name, listener) => {
      window.addEventListener(name, listener, { capture: true, signal: listening.signal });
    };
    // The button may have been released where this page does not hear of it.
    listen("pointermove", (moved) => (moved.buttons ? this.move(moved) : this.end()));
    listen("pointerup", () => this.end());
    listen("pointercancel", () => { this.giveUp(); this.end(); });
    listen("blur", (left) => { if (left.target === window) this.giveUp(); });
    // Before the key selects nothing.
    listen("keydown", (pressed) => {
      if (pressed.key !== "Escape" || !this.drag.box) return;
      pressed.preventDefault();
      pressed.stopPropagation();
      this.giveUp();
    });
  }

  move({ clientX, clientY, pageX, pageY }) {
    const { drag, grid } = this;
    Object.assign(drag, { clientX, clientY });
    if (drag.box || drag.isOver || Math.hypot(pageX - drag.pageX, pageY - drag.pageY) < FIRST_MOVE) return;
    drag.box = document.createElement("div");
    drag.box.className = "band";
    document.body.append(drag.box);
    document.documentElement.classList.add("banding");
    window.getSelection().removeAllRanges();
    grid.place.setPointerCapture(drag.pointerId);
    this.follow();
  }

  // Once a frame, as the page may scroll below a mouse that rests.
  follow() {
    const { drag } = this;
    if (!drag?.box) return;
    const above = EDGE - drag.clientY, below = drag.clientY - (window.innerHeight - EDGE);
    const depth = Math.min(1, Math.max(above, below, 0) / EDGE);
    if (depth > 0) window.scrollBy(0, (above > below ? -1 : 1) * Math.ceil(FASTEST * depth));
    this.touch();
    requestAnimationFrame(() => this.follow());
  }

  // Draws the band from where the drag began to the mouse, and selects what it touches.
  touch() {
    const { drag, grid } = this, { clientX, clientY } = drag;
    const startX = drag.pageX - window.scrollX, startY = drag.pageY - window.scrollY;
    const [left, right] = [startX, clientX].sort((one, other) => one - other);
    const [top, bottom] = [startY, clientY].sort((one, other) => one - other);
    const { style } = drag.box;
    for (const [name, value] of Object.entries({ left, top, width: right - left, height: bottom - top })) {
      style[name] = `${value}px`;
    }
    const touched = grid.cards.filter((card) => {
      const box = card.getBoundingClientRect();
      return box.left < right && box.right > left && box.top < bottom && box.bottom > top;
    });
    if (drag.isDrawn && touched.length === drag.touched.length && touched.every((card, at) => card === drag.touched[at])) return;
    Object.assign(drag, { touched, isDrawn: true });
    grid.choose([...drag.kept, ...touched], { isLast: false });
  }

  giveUp() {
    const { drag, grid } = this;
    if (drag.box) grid.choose(drag.before);
    this.hide();
    drag.isOver = true;
  }

  hide() {
    this.drag.box?.remove();
    this.drag.wasDrawn ||= Boolean(this.drag.box);
    this.drag.box = null;
    document.documentElement.classList.remove("banding");
  }

  end() {
    const { drag, grid } = this;
    if (drag.box) {
      this.touch();
      grid.chooseDragged([...drag.kept, ...drag.touched], drag.touched);
    }
    this.hide();
    drag.listening.abort();
    this.drag = null;
    // The click that ends the drag opens nothing, also in browsers that send it to the card below.
    if (!drag.wasDrawn) return;
    const stop = (event) => {
      event.preventDefault();
      event.stopPropagation();
    };
    window.addEventListener("click", stop, { capture: true, once: true });
    setTimeout(() => window.removeEventListener("click", stop, { capture: true }));
  }
}
