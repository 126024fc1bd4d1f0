// Samples on cards that people look at and mark, many in a grid or one closely.

// The classes that fit a card best, each with its share in percent; the one that fits better alone
// where the shares are unknown.
function choicesOf(card) {
  const { likely, nearest } = card.dataset;
  return likely ? JSON.parse(likely) : nearest ? [[nearest, null]] : [];
}

class Review {
  // `idOf` and `cardOf` lead from a card to the id of its mark and back; `refusal` says why nothing
  // may be marked here, and `say` tells it; `past` holds what can be undone.
  constructor(store, idOf, cardOf, { refusal = "", say = () => {}, past } = {}) {
    Object.assign(this, { marks: new Marks(store, past), idOf, cardOf, refusal, say });
  }

  // The mark that a decision gives to a card; null where there is no such class. A digit stands for
  // the class that has it at the card that people look at.
  markFor(card, decision, looked = card) {
    if (decision === "keep" || decision === "drop") return { mark: decision, label: null };
    return this.markAs(card, decision === "relabel" ? card.dataset.nearest : choicesOf(looked)[decision - 1]?.[0]);
  }

  // The mark of a card that is of a class, which may be the one that it has.
  markAs(card, label) {
    if (!label) return null;
    return label === card.dataset.given ? { mark: "keep", label: null } : { mark: "relabel", label };
  }

  // Marks cards, or takes the marks away that they have; false where none of them can be marked.
  decide(cards, decision, looked = cards[0]) {
    if (/\d/.test(decision) && !choicesOf(looked)[decision - 1]) return false;
    return this.mark(cards, (card) => this.markFor(card, decision, looked));
  }

  // Marks one card as being of any class.
  relabel(card, label) { return this.mark([card], () => this.markAs(card, label)); }

  mark(cards, markFor) {
    const marks = cards.map((card) => ({ id: this.idOf(card), mark: markFor(card) })).filter(({ mark }) => mark);
    if (this.refusal || !marks.length) {
      this.say(this.refusal || "No other class fits better: name one on the page of the image.");
      return false;
    }
    this.marks.toggle(marks);
    return true;
  }

  // Takes the last mark back; gives its card, if there is one.
  undo() {
    const undone = this.marks.undo();
    return undone && this.cardOf(undone.id);
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
    if (!this.review.decide(several ? selected : [cards[place]], decision, cards[place])) return false;
    if (several) this.unselect();
    else if (place + 1 < cards.length) this.focus(cards[place + 1]);
    else this.more();
    return true;
  }
}
