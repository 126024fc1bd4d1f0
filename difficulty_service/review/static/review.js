// The grid of doubtful labels: filters, keys, stamps and the tray.

const REVIEW_KEYS = { k: "keep", r: "relabel", d: "drop" };

class Review {
  constructor(data) {
    this.data = data;
    this.marks = new Marks(data.key);
    this.cards = [...byId("grid").children];
    this.current = 0;
    this.marks.listeners.push(() => this.paint());
    this.cards.forEach((card, index) => {
      this.button(card).disabled = false;
      this.button(card).tabIndex = index ? -1 : 0;
    });
    byId("controls").hidden = false;
    if (window.matchMedia("(max-width: 560px)").matches) byId("controls").open = false;
    this.listen();
    this.filter();
    this.paint();
  }

  button(card) { return card.querySelector(".look"); }
  visible() { return this.cards.filter((card) => !card.hidden); }
  sample(index) { return this.data.cards[index]; }

  listen() {
    const grid = byId("grid");
    grid.addEventListener("click", (event) => {
      const card = event.target.closest(".look")?.parentElement;
      if (card) { this.focus(this.cards.indexOf(card)); openDialog(this); }
    });
    // Assistive technology focuses cards without a click or an arrow key.
    grid.addEventListener("focusin", (event) => {
      const card = event.target.closest(".card");
      if (card) this.focus(this.cards.indexOf(card), { move: false });
    });
    grid.addEventListener("keydown", (event) => this.press(event));
    for (const id of ["cut", "filter-label", "filter-nearest"]) {
      byId(id).addEventListener("input", () => this.filter());
    }
    byId("reset").addEventListener("click", () => this.setFilter("", ""));
    byId("show-keys").addEventListener("click", () => byId("keys").showModal());
    byId("undo").addEventListener("click", () => this.undo());
    byId("clear").addEventListener("click", () => {
      if (window.confirm(`Delete ${plural(this.marks.byId.size, "mark")}?`)) this.marks.clear();
    });
    byId("download").addEventListener("click", () => download("marks.csv", this.marks.toCsv()));
    for (const link of document.querySelectorAll(".matrix a")) {
      link.addEventListener("click", () => this.setFilter(link.dataset.label, link.dataset.nearest));
    }
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const list = this.visible(), place = list.indexOf(this.cards[this.current]);
    const target = this.target(event.key, list, place);
    if (target !== undefined) {
      event.preventDefault();
      this.focus(this.cards.indexOf(list[Math.min(list.length - 1, Math.max(0, target))]));
      return;
    }
    const mark = REVIEW_KEYS[event.key.toLowerCase()];
    if (mark) {
      this.mark(this.current, mark);
      this.focus(this.cards.indexOf(list[Math.min(list.length - 1, place + 1)]));
    } else if (event.key.toLowerCase() === "u") this.undo();
    else if (event.key === "?") byId("keys").showModal();
  }

  // Place in the list to which a key moves; undefined for other keys.
  target(key, list, place) {
    const below = list.findIndex((card) => card.offsetTop > list[0].offsetTop);
    const across = below < 1 ? list.length : below;
    return {
      ArrowRight: place + 1, ArrowLeft: place - 1,
      ArrowDown: place + across, ArrowUp: place - across,
      Home: 0, End: list.length - 1,
    }[key];
  }

  focus(index, { move = true } = {}) {
    if (index < 0) return;
    this.button(this.cards[this.current]).tabIndex = -1;
    this.current = index;
    const button = this.button(this.cards[index]);
    button.tabIndex = 0;
    if (move) button.focus();
  }

  mark(index, mark) {
    const sample = this.sample(index), names = this.data.names;
    this.marks.toggle(sample.id, {
      mark,
      label: mark === "relabel" ? names[sample.nearest] : "",
      given: names[sample.label],
      margin: sample.margin,
    });
  }

  undo() {
    const id = this.marks.undo();
    const index = this.data.cards.findIndex((sample) => sample.id === id);
    if (index >= 0 && !this.cards[index].hidden && !byId("dialog").open) this.focus(index);
  }

  paint() {
    this.cards.forEach((card, index) => {
      const mark = this.marks.get(this.sample(index).id);
      const text = mark ? (mark.mark === "relabel" ? mark.label : mark.mark) : "";
      card.dataset.mark = mark ? mark.mark : "";
      card.querySelector(".stamp").textContent = text;
    });
    byId("tray").hidden = !this.marks.byId.size;
    byId("tray-text").textContent = describeMarks(this.marks);
    byId("undo").disabled = !this.marks.past.length;
  }

  setFilter(label, nearest) {
    byId("cut").value = 0;
    for (const [id, value] of [["filter-label", label], ["filter-nearest", nearest]]) {
      byId(id).value = value;
      // A class without a card on this page is no option.
      if (byId(id).value !== value) byId(id).value = "";
    }
    this.filter();
  }

  filter() {
    const step = Number(byId("cut").value), cut = this.data.cuts[step];
    const label = byId("filter-label").value, nearest = byId("filter-nearest").value;
    let shown = 0;
    this.cards.forEach((card, index) => {
      const sample = this.sample(index);
      // The steps are rounded to four decimals, as the doubts are.
      card.hidden = sample.doubt < cut - 1e-4 || (label !== "" && sample.label !== Number(label))
        || (nearest !== "" && sample.nearest !== Number(nearest));
      shown += !card.hidden;
    });
    for (const bar of byId("cut-bars").children) {
      bar.classList.toggle("off", Number(bar.dataset.low) < cut - 1e-3);
    }
    const count = this.data.counts[step];
    byId("cut-value").textContent = cut.toFixed(1);
    byId("cut-count").textContent =
      `${plural(count, "image")}, ${(100 * count / this.data.total).toFixed(1)} % of all`;
    byId("cut").setAttribute("aria-valuetext", `${cut.toFixed(1)}: ${plural(count, "image")}`);
    byId("filtered").textContent = shown < this.cards.length ? `(${shown} shown)` : "";
    byId("no-match").hidden = shown > 0;
    const first = this.cards.findIndex((card) => !card.hidden);
    if (this.cards[this.current].hidden) this.focus(first, { move: false });
  }
}

