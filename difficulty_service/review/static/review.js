// Samples on cards that people look at and mark, many in a grid or one closely.

class Review {
  // `idOf` and `cardOf` lead from a card to the id of its mark and back; `classes` are those of the
  // digits; `refusal` says why nothing may be marked here, and `say` tells it.
  constructor(store, idOf, cardOf, { classes = [], refusal = "", say = () => {} } = {}) {
    Object.assign(this, { marks: new Marks(store), idOf, cardOf, classes, refusal, say });
  }

  // The mark that a decision gives to a card; null where no class fits better.
  markFor(card, decision) {
    if (decision === "keep" || decision === "drop") return { mark: decision, label: null };
    const label = decision === "relabel" ? card.dataset.nearest : this.classes[decision - 1];
    return label ? { mark: "relabel", label } : null;
  }

  // Marks cards, or takes the marks away that they have; false where none of them can be marked.
  decide(cards, decision) {
    if (/\d/.test(decision) && !this.classes[decision - 1]) return false;
    const marks = cards.map((card) => ({ id: this.idOf(card), mark: this.markFor(card, decision) }))
      .filter(({ mark }) => mark);
    if (this.refusal || !marks.length) {
      this.say(this.refusal
        || "No other class fits better: choose one with 1 to 9, or on the page of the image.");
      return false;
    }
    this.marks.toggle(marks);
    return true;
  }

  // Relabels one card to any class.
  relabel(card, label) { this.marks.toggle([{ id: this.idOf(card), mark: { mark: "relabel", label } }]); }

  // Takes the last mark back; gives its card, if there is one.
  undo() {
    const undone = this.marks.undo();
    return undone && this.cardOf(undone.id);
  }

  // Presses the button of a bar of decisions that is the mark of a card.
  showDecision(bar, card) {
    const mark = this.marks.store.get(this.idOf(card));
    for (const button of bar.querySelectorAll("[aria-pressed]")) {
      const isOn = mark !== null && isSame(mark, this.markFor(card, button.value));
      button.setAttribute("aria-pressed", String(isOn));
    }
  }
}

const look = (card) => card.querySelector(".look");

// A grid of cards, of which Tab reaches one and the arrow keys the others.
class Grid {
  constructor(place, review) {
    Object.assign(this, { place, review, current: null, anchor: null, awaited: 0 });
    listenForKeys(place, {
      move: (move, event) => this.move(move, event),
      mark: (decision, event) => this.mark(decision, event),
      undo: () => this.focus(review.undo()),
      close: () => this.unselect(),
    });
    // Assistive technology focuses cards without a click or an arrow key.
    place.addEventListener("focusin", (event) => {
      const card = event.target.closest(".card");
      if (card) this.enter(card);
    });
    new MutationObserver(() => this.renew()).observe(
      place, { childList: true, subtree: true, attributeFilter: ["hidden"] },
    );
    this.renew();
  }

  get cards() { return [...this.place.querySelectorAll(".card:not([hidden])")]; }
  get selected() { return this.cards.filter((card) => card.classList.contains("selected")); }

  focus(card) { if (card && !card.hidden) look(card).focus(); }

  enter(card) {
    if (this.current) look(this.current).tabIndex = -1;
    this.current = card;
    if (card) look(card).tabIndex = 0;
  }

  // Looks at the cards again, as some were added, removed or hidden.
  renew() {
    const { cards } = this;
    for (const card of cards) look(card).tabIndex = -1;
    this.enter(cards.includes(this.current) ? this.current : cards[0] ?? null);
    if (!this.awaited || this.awaited === cards.length) return;
    this.focus(cards[this.awaited]);
    this.awaited = 0;
  }

  // Asks for more cards, if there are any, and goes on to the first of them.
  more() {
    const link = this.place.querySelector(".more a");
    if (!link) return;
    this.awaited = this.cards.length;
    link.click();
  }

  move(move, event) {
    const { cards } = this, place = cards.indexOf(event.target.closest(".card"));
    if (place < 0) return false;
    const beyond = placeAfter(move, place, cards);
    const target = Math.min(cards.length - 1, Math.max(0, beyond));
    if (beyond >= cards.length) this.more();
    if (event.shiftKey) this.select(place, target);
    else this.unselect();
    this.focus(cards[target]);
    return true;
  }

  select(from, to) {
    this.anchor ??= from;
    const [low, high] = [Math.min(this.anchor, to), Math.max(this.anchor, to)];
    this.cards.forEach((card, place) => {
      card.classList.toggle("selected", low <= place && place <= high);
    });
    byId("announcer").textContent = `${high - low + 1} selected`;
  }

  unselect() {
    for (const card of this.selected) card.classList.remove("selected");
    this.anchor = null;
  }

  mark(decision, event) {
    const { cards, selected } = this, place = cards.indexOf(event.target.closest(".card"));
    if (place < 0) return false;
    const several = selected.length > 1;
    if (!this.review.decide(several ? selected : [cards[place]], decision)) return false;
    if (several) this.unselect();
    else if (place + 1 < cards.length) this.focus(cards[place + 1]);
    else this.more();
    return true;
  }
}
