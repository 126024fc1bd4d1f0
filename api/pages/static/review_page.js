// The review on the list of images and on the page of one image.

import { PictureZoom } from "./picture_zoom.js";
import { RestMarks } from "./rest_marks.js";
import { listenForChoice, showWorth } from "./further.js";
import { SessionPast } from "./session_past.js";
import { ClassChoice } from "./report/class_choice.js";
import { DecisionBar } from "./report/decisions.js";
import { listenForKeys } from "./report/keys.js";
import { isSame } from "./report/marks.js";
import { byId } from "./report/page.js";
import { Grid, Review } from "./report/review.js";

const READ_ONLY = "This key may only read. Sign in with one that has the scope write.";

export function say(text) {
  const notice = byId("notice");
  notice.textContent = text;
  notice.hidden = false;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => { notice.hidden = true; }, 8000);
}

// The names of the classes, of which a page with many has only the first; all are fetched once.
export async function classNames() {
  const list = byId("classes"), known = [...list.options].map(({ value }) => value);
  if (!list.dataset.all) return known;
  classNames.all ??= fetch(list.dataset.all)
    .then((answer) => (answer.ok ? answer.json() : Promise.reject(answer)))
    .catch(() => {
      classNames.all = null;
      return known;
    });
  return classNames.all;
}

// Lists the images that are like one of them.
function showAlike(card) {
  if (!card) return false;
  window.location.assign(`${window.location.pathname.replace(/\/images.*/, "/images")}?like=${card.dataset.row}`);
  return true;
}

const cardOf = (row) => document.querySelector(`.card[data-row="${row}"]`);

export function startReview() {
  const place = byId("results") || byId("one");
  listenForChoice();
  if (!place) return;
  const { job } = place.dataset, store = new RestMarks(job, cardOf, say);
  const review = new Review(store, (card) => Number(card.dataset.row), cardOf, {
    refusal: place.dataset.mayWrite === "yes" ? "" : READ_ONLY, say, past: new SessionPast(job),
  });
  if (place.id === "one") new OnePage(review, new LastLooked(job), new CameFrom(job));
  else startGrid(place, review, new LastLooked(job));
}

// The image that was looked at last, which the list shows again with the focus.
class LastLooked {
  constructor(job) { this.key = `difficulty-looked:${job}`; }

  set(row) {
    try { sessionStorage.setItem(this.key, JSON.stringify([window.location.search, row])); } catch { /* none is kept */ }
  }

  // The row of the image in a list with these conditions.
  get(conditions) {
    try {
      const [search, row] = JSON.parse(sessionStorage.getItem(this.key)) ?? [];
      return search === conditions ? row : null;
    } catch { return null; }
  }
}

const ELSEWHERE = {
  copies: "the copies", faults: "the faults", map: "the map", classes: "the classes",
  pairs: "the confusions", round: "the round", missing: "the boxes", comparisons: "the comparison",
};

// The page that the first image of a visit was opened from, where that is no list of images.
class CameFrom {
  constructor(job) {
    this.key = `difficulty-came:${job}`;
    try {
      const from = new URL(document.referrer || window.location.href);
      const isHere = from.origin === window.location.origin;
      const [page] = isHere ? from.pathname.split(`/jobs/${job}/`)[1]?.split("/") ?? [] : [];
      if (page in ELSEWHERE) sessionStorage.setItem(this.key, JSON.stringify([page, from.pathname + from.search]));
      else if (page === "images" && !/\/images\/\d+/.test(from.pathname)) sessionStorage.removeItem(this.key);
    } catch { /* the link leads to the list */ }
  }

  // Has the link of a page of an image lead back there.
  show(link) {
    try {
      const [page, address] = JSON.parse(sessionStorage.getItem(this.key)) ?? [];
      if (page) Object.assign(link, { href: address, textContent: `Back to ${ELSEWHERE[page]}` });
    } catch { /* the link leads to the list */ }
  }
}

// Fetches the list with its conditions, with further ones, as a part of the page.
async function showList(place, further = {}) {
  const address = new URL(window.location);
  for (const [name, value] of Object.entries(further)) address.searchParams.set(name, value);
  const answer = await fetch(address, { headers: { "HX-Request": "true", Accept: "text/html" } }).catch(() => null);
  if (!answer?.ok) return;
  place.innerHTML = await answer.text();
  htmx.process(place);
  showWorth();
}

// Shows a list as it was left, where the address names the image that was opened.
async function restore(place, grid, looked) {
  const opened = /^#image-(\d+)$/.exec(window.location.hash)?.[1];
  if (opened === undefined) return;
  window.history.scrollRestoration = "manual";
  const row = looked.get(window.location.search) ?? Number(opened);
  if (!cardOf(row)) await showList(place, { through: row });
  const card = cardOf(row) ?? grid.cards[Number(byId("grid")?.dataset.restored ?? 0)] ?? grid.cards.at(-1);
  grid.focus(card);
  card?.scrollIntoView({ block: "center" });
}

function startGrid(place, review, looked) {
  const grid = new Grid(place, review);
  for (const input of [byId("label"), byId("near")].filter(Boolean)) {  // not without classes
    new ClassChoice(input, classNames, () => input.dispatchEvent(new Event("change", { bubbles: true })), { isFree: true });
  }
  listenForKeys(place, { like: (_, event) => showAlike(event.target.closest(".card")) });
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
    // Also where no card has the focus, as after many were marked at once.
    undo: () => {
      if (document.activeElement.closest(".card")) return false;
      return grid.focus(review.undo());
    },
  });
  // The address that one comes back to names the image.
  place.addEventListener("click", (event) => {
    const card = event.target.closest(".look")?.parentElement;
    if (!card || event.ctrlKey || event.metaKey || event.shiftKey) return;
    looked.set(Number(card.dataset.row));
    window.history.replaceState(window.history.state, "", `#${card.id}`);
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest("#tray-undo")) grid.focus(review.undo());
  });
  place.addEventListener("submit", (event) => {
    if (!event.target.closest(".bulk:not(.views)")) return;
    event.preventDefault();
    markMatching(event.target, event.submitter, place, review);
  });
  restore(place, grid, looked);
}

// Marks all images that the filters show, so that it can be undone.
async function markMatching(form, button, place, review) {
  const body = new URLSearchParams(new FormData(form, button));
  button.disabled = true;
  const answer = await fetch(form.action, { method: "POST", headers: { Accept: "application/json" }, body })
    .catch(() => null);
  button.disabled = false;
  if (!answer?.ok) {
    say(`The marks are not stored: ${answer ? `the service answers ${answer.status}` : "the service does not answer"}.`);
    return;
  }
  const changes = (await answer.json()).filter(({ before, after }) => !isSame(before, after));
  if (changes.length) review.marks.past = [...review.marks.past, { changes }];
  review.marks.store.tell(changes);
  await showList(place);
}

// The page of one image, on which each decision leads on to the next one.
class OnePage {
  constructor(review, looked, came) {
    Object.assign(this, { review, looked, came, waiting: Promise.resolve(), unfinished: 0 });
    listenForKeys(document, {
      move: (move) => this.step({ left: "previous", right: "next" }[move]),
      undo: () => this.undo(),
      mark: (decision) => this.decide(decision),
      search: () => byId("other")?.focus(),
      like: () => showAlike(this.card),
    });
    document.addEventListener("click", (event) => {
      const link = event.target.closest("a[href]");
      if (!link || link.target || link.download || event.ctrlKey || event.metaKey || event.shiftKey) return;
      if (link.matches("#previous, #next, #further-link")) {
        event.preventDefault();
        this.step(link.id === "further-link" ? "next" : link.id);
      } else if (this.unfinished) {  // a mark is on its way, which the other page shows, too
        event.preventDefault();
        const address = link.href;
        this.then(() => { window.location.assign(address); });
      }
    });
    this.show();
  }

  get card() { return document.querySelector("#one .card"); }

  show() {
    const { card, review } = this, one = byId("one"), bar = byId("decisions");
    this.looked.set(Number(card.dataset.row));
    this.came.show(byId("all"));
    if (bar) {
      const shown = new DecisionBar(bar, review, classNames, {
        decide: (decision) => this.decide(decision),
        relabel: (name) => this.queue(() => review.relabel(this.card, name)),
        undo: () => this.undo(),
      });
      shown.show(card);
      new MutationObserver(() => shown.show(card)).observe(card, { attributes: true });
    }
    showWorth();
    if (byId("zoom")) new PictureZoom(byId("zoom"), byId("zoom-tools"));
    const picture = card.querySelector("img");
    this.ahead = one.dataset.ahead.split(" ").filter(Boolean).map((row) => {
      const image = new Image();
      image.src = picture.getAttribute("src").replace(/\d+\/picture/, `${row}/picture`);
      return image;
    });
  }

  // One after the other, also after one that fails: a key that comes early is for the next image.
  then(work) {
    this.unfinished += 1;
    this.waiting = this.waiting.then(work, work).finally(() => { this.unfinished -= 1; });
  }

  step(id) {
    const link = byId(id) ?? (id === "next" ? byId("further-link") : null);
    if (!link) return false;
    this.then(() => this.visit((byId(id) ?? byId("further-link"))?.href));
    return true;
  }

  decide(decision) {
    this.queue(() => this.review.decide([this.card], decision));
    return true;
  }

  // Marks, and goes on to the next image once the mark is stored.
  queue(mark) {
    this.then(async () => {
      if (!mark()) return;
      const { done } = await this.review.marks.store.queue;
      if (!done.length) return;  // the notice says why
      if (byId("next")) await this.visit(byId("next").href);
      else {
        say("This was the last one of this list.");
        byId("further-link")?.focus();
      }
    });
  }

  undo() {
    this.then(async () => {
      const undone = this.review.marks.undo();
      if (!undone) {
        say("There is nothing to undo.");
        return;
      }
      await undone.result;
      if (undone.number > 1) say(`${undone.number.toLocaleString("en")} marks were taken back.`);
      else await this.visit(window.location.pathname.replace(/\d+$/, undone.id) + window.location.search);
    });
  }

  // Shows the page of another image in the place of this one; back leads to the list.
  async visit(address) {
    if (!address || new URL(address, window.location).pathname === window.location.pathname) return;
    const answer = await fetch(address, { headers: { Accept: "text/html" } }).catch(() => null);
    const page = answer?.ok ? new DOMParser().parseFromString(await answer.text(), "text/html") : null;
    const one = page?.getElementById("one");
    if (!one) {
      window.location.href = address;  // which says what is wrong
      return;
    }
    window.history.replaceState(window.history.state, "", address);
    document.title = page.title;
    const { id, dataset } = document.activeElement;
    byId("one").replaceWith(document.adoptNode(one));
    htmx.process(byId("one"));
    // Who has reached a button by Tab goes on there; the box of names gives the keys back.
    if (dataset.decision) document.querySelector(`[data-decision=${CSS.escape(dataset.decision)}]`)?.focus();
    else if (id && id !== "other") byId(id)?.focus();
    byId("announcer").textContent = this.card.querySelector("img").alt;
    this.show();
  }
}
