// The review on the list of images and on the page of one image.

import { RestMarks } from "./rest_marks.js";

const READ_ONLY = "This key may only read. Sign in with one that has the scope write.";

function say(text) {
  const notice = byId("notice");
  notice.textContent = text;
  notice.hidden = false;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => { notice.hidden = true; }, 8000);
}

export function startReview() {
  const place = byId("results") || byId("one");
  if (!place) return;
  const cardOf = (row) => place.querySelector(`.card[data-row="${row}"]`);
  const store = new RestMarks(place.dataset.job, cardOf, say);
  const review = new Review(store, (card) => Number(card.dataset.row), cardOf, {
    classes: JSON.parse(place.dataset.digits ?? "[]"),
    refusal: place.dataset.mayWrite === "yes" ? "" : READ_ONLY,
    say,
  });
  if (place.id === "one") startOne(place, review);
  else startGrid(place, review);
}

function startGrid(place, review) {
  const grid = new Grid(place, review);
  listenForKeys(document, {
    search: () => {
      document.querySelector(".side-box").open = true;
      byId("q").focus();
    },
    // The first arrow key leads to the cards.
    move: (move, event) => {
      const [first] = grid.cards;
      if (!first || document.activeElement !== document.body || !event.key.startsWith("Arrow")) return false;
      return grid.focus(first);
    },
  });
}

function startOne(place, review) {
  const card = place.querySelector(".card"), bar = byId("decisions");
  if (bar) new MutationObserver(() => review.showDecision(bar, card)).observe(card, { attributes: true });
  listenForKeys(document, {
    move: (move) => {
      const link = { left: byId("previous"), right: byId("next") }[move];
      link?.click();
      return Boolean(link);
    },
    undo: () => { review.undo(); },
    mark: (decision) => review.decide([card], decision),
  });
}
