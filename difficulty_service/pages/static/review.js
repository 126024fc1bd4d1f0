// Samples on cards that people look at and mark, many in a grid or one closely.

import { listenForKeys, MARK_KINDS, placeAfter } from "./keys.js";
import { Marks } from "./marks.js";
import { byId } from "./page.js";
import { RubberBand } from "./rubber_band.js";

// The classes that fit a card best, each with its share in percent; the one that fits better alone
// where the shares are unknown.
export function choicesOf(card) {
  const { likely, nearest } = card.dataset;
  return likely ? JSON.parse(likely) : nearest ? [[nearest, null]] : [];
}

export class Review {
  // `idOf` and `cardOf` lead from a card to the id of its mark and back; `refusal` says why nothing
  // may be marked here, and `say` tells it; `past` holds what can be undone.
  constructor(store, idOf, cardOf, { refusal = "", say = () => {}, past } = {}) {
    Object.assign(this, { marks: new Marks(store, past), idOf, cardOf, refusal, say });
  }

  // The mark that a decision gives to a card; null where there is no such class. A digit stands for
  // the class that has it at the card that people look at.
  markFor(card, decision, looked = card) {
    const kind = MARK_KINDS.find(({ mark }) => mark === decision);
    if (kind && !kind.needsClass) return { mark: decision, label: null };
    return this.markAs(card, kind ? card.dataset.nearest : choicesOf(looked)[decision - 1]?.[0]);
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

export const look = (card) => card.querySelector(".look");

// Cards as they are drawn, row by row.
function rowsOf(cards) {
  const rows = [];
  for (const card of cards) {
    if (card.offsetTop === rows.at(-1)?.[0].offsetTop) rows.at(-1).push(card);
    else rows.push([card]);
  }
  return rows;
}

// A grid of cards, of which Tab reaches one and the arrow keys the others. Some of them may be selected,
// which the next mark is for; who may not mark has no bar for them, and cannot select by mouse.
export class Grid {
  constructor(place, review) {
    const bar = byId("selection");
    Object.assign(this, { place, review, bar, current: null, anchor: null, awaited: 0, count: 0, said: 0, rows: [] });
    listenForKeys(place, {
      move: (move, event) => this.move(move, event),
      mark: (decision, event) => this.mark(decision, event),
      undo: () => this.focus(review.undo()),
      ...(bar && {
        select: (_, event) => this.toggle(event.target.closest(".card")),
        row: (_, event) => this.toggleRow(event.target.closest(".card")),
        all: (_, event) => event.target.closest(".card") !== null && this.choose(this.cards),
      }),
    });
    listenForKeys(document, {
      close: () => this.unselect(),
      move: (move) => ["left", "right"].includes(move) && this.begin(),
      mark: (decision) => this.begin((card) => this.mark(decision, { target: card })),
    });
    // Assistive technology focuses cards without a click or an arrow key.
    place.addEventListener("focusin", (event) => {
      const card = event.target.closest(".card");
      if (card) this.enter(card);
    });
    if (bar) {
      this.listenForClicks();
      new RubberBand(this);
    }
    new MutationObserver(() => this.renew()).observe(
      place, { childList: true, subtree: true, attributeFilter: ["hidden"] },
    );
    this.renew();
    if (bar) new ResizeObserver(() => this.offerRows()).observe(place);
  }

  listenForClicks() {
    const { place, bar } = this;
    // A range would select the text between as well, and begin where it ends.
    place.addEventListener("mousedown", (event) => {
      if (event.shiftKey && event.target.closest(".card")) event.preventDefault();
    });
    // Before anything that opens a card.
    place.addEventListener("click", (event) => {
      const card = event.target.closest(".card"), isBox = event.target.matches(".pick");
      if (event.target.closest(".pick-row")) {
        event.stopPropagation();
        this.toggleRow(card);
        return;
      }
      if (!card || !(isBox || event.shiftKey || event.ctrlKey || event.metaKey)) return;
      event.stopPropagation();
      if (!isBox) event.preventDefault();  // which would set a box back
      if (event.shiftKey) this.selectTo(card);
      else this.toggle(card);
      look(card).focus({ preventScroll: true });
    }, { capture: true });
    bar.addEventListener("click", (event) => {
      const { decision } = event.target.closest("[data-decision]")?.dataset ?? {};
      if (decision === "none") this.unselect();
      else if (decision && this.review.decide(this.selected, decision)) this.unselect();
      // The button that had the focus is gone.
      if (bar.hidden && this.current) look(this.current).focus({ preventScroll: true });
    });
  }

  get cards() { return [...this.place.querySelectorAll(".card:not([hidden])")]; }
  get selected() { return this.cards.filter((card) => card.classList.contains("selected")); }

  focus(card) { if (card && !card.hidden) look(card).focus(); }

  // What the first key of a page does, when nothing has the focus yet: it leads to the first card, and
  // acts on one that people see already. False where it is not the first key.
  begin(act = () => false) {
    const card = this.current;
    if (!card || document.activeElement !== document.body || document.querySelector("dialog[open]")) return false;
    const { top, bottom } = card.getBoundingClientRect(), isSeen = top >= 0 && bottom <= window.innerHeight;
    this.focus(card);
    if (isSeen) act(card);
    return true;
  }

  enter(card) {
    if (this.current) look(this.current).tabIndex = -1;
    this.current = card;
    if (card) look(card).tabIndex = 0;
    this.offerRow();
  }

  // Looks at the cards again, as some were added, removed or hidden, which are no longer selected.
  renew() {
    const { cards } = this;
    for (const card of cards) {
      look(card).tabIndex = -1;
      if (this.bar && !card.querySelector(".pick")) this.addBox(card);
    }
    if (this.count) this.choose(this.selected);
    if (this.bar) this.offerRows();
    this.enter(cards.includes(this.current) ? this.current : cards[0] ?? null);
    if (!this.awaited || this.awaited === cards.length) return;
    this.focus(cards[this.awaited]);
    this.awaited = 0;
  }

  // A box for the mouse, the thumb and assistive technology; keys have X, and Tab goes past it.
  addBox(card) {
    const box = document.createElement("input");
    Object.assign(box, { type: "checkbox", className: "pick", tabIndex: -1 });
    box.setAttribute("aria-label", "Select");
    card.append(box);
  }

  // A button at the start of each row, as wide as the cards leave room for.
  offerRows() {
    this.rows = rowsOf(this.cards);
    const firsts = new Set(this.rows.map(([card]) => card));
    for (const button of this.rowButtons) if (!firsts.has(button.parentElement)) button.remove();
    this.rows.forEach(([card], place) => {
      const button = card.querySelector(".pick-row") ?? document.createElement("button");
      Object.assign(button, { type: "button", className: "pick-row", title: "Select this row (S)" });
      button.setAttribute("aria-label", `Select row ${place + 1}`);
      if (!button.parentElement) card.append(button);
    });
    this.offerRow();
  }

  get rowButtons() { return this.place.querySelectorAll(".pick-row"); }

  rowOf(card) { return this.rows.find((row) => row.includes(card)) ?? []; }

  // Says which rows are selected; Tab reaches the button of the row that has the focus.
  offerRow() {
    const [first] = this.rowOf(this.current);
    for (const [card, ...others] of this.rows) {
      const button = card.querySelector(".pick-row");
      if (!button) continue;
      button.tabIndex = card === first ? 0 : -1;
      const isSelected = [card, ...others].every((each) => each.classList.contains("selected"));
      button.setAttribute("aria-pressed", String(isSelected));
    }
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
    if (event.shiftKey) this.selectTo(cards[target]);
    else this.anchor = null;
    this.focus(cards[target]);
    return true;
  }

  // Selects the cards from where the range began, which is at first the card with the focus.
  selectTo(card) {
    const { cards } = this;
    if (!cards.includes(this.anchor)) this.anchor = this.current;
    const [low, high] = [this.anchor, card].map((each) => cards.indexOf(each)).sort((a, b) => a - b);
    this.choose(cards.slice(low, high + 1));
  }

  toggle(card) {
    if (!card) return false;
    const { selected } = this;
    this.anchor = card;
    this.choose(selected.includes(card) ? selected.filter((each) => each !== card) : [...selected, card]);
    return true;
  }

  // Adds the row of a card to the selection, or takes it out where all of it is selected.
  toggleRow(card) {
    const row = this.rowOf(card), selected = new Set(this.selected);
    if (!row.length) return false;
    const isAll = row.every((each) => selected.has(each));
    for (const each of row) {
      if (isAll) selected.delete(each);
      else selected.add(each);
    }
    [this.anchor] = row;
    this.choose([...selected]);
    return true;
  }

  // Selects what a drag has touched, and gives the focus to the last of it, for the keys that mark.
  chooseDragged(chosen, touched) {
    this.choose(chosen);
    this.anchor = touched[0] ?? null;
    if (touched.length) look(touched.at(-1)).focus({ preventScroll: true });
  }

  // Selects these cards alone, and says how many they are once no others follow at once.
  choose(chosen, { isLast = true } = {}) {
    const wanted = new Set(chosen);
    for (const card of this.place.querySelectorAll(".card")) {
      const isWanted = wanted.has(card), box = card.querySelector(".pick");
      card.classList.toggle("selected", isWanted);
      if (box) box.checked = isWanted;
    }
    this.offerRow();
    this.count = wanted.size;
    const count = this.count.toLocaleString("en");
    if (isLast && this.count !== this.said) {
      byId("announcer").textContent = this.count ? `${count} selected` : "Nothing selected";
      this.said = this.count;
    }
    if (!this.bar) return;
    this.bar.hidden = !this.count;
    for (const each of this.bar.querySelectorAll(".count")) each.textContent = count;
  }

  // Selects nothing; false where nothing was selected.
  unselect() {
    const { count } = this;
    this.anchor = null;
    this.choose([]);
    return count > 0;
  }

  mark(decision, event) {
    const { cards, selected } = this, card = event.target.closest(".card"), place = cards.indexOf(card);
    if (place < 0) return false;
    const chosen = selected.length ? selected : [card];
    if (!this.review.decide(chosen, decision, card)) return false;
    this.unselect();
    if (chosen.length > 1 || chosen[0] !== card) return true;
    if (place + 1 < cards.length) this.focus(cards[place + 1]);
    else this.more();
    return true;
  }
}
