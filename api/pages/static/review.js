// Keys of the list of images and of the page of one image.

import { Marks } from "./marks.js";

const TYPED = "input, select, textarea, [contenteditable]";

export function startReview() {
  const place = byId("results") || byId("one");
  if (!place) return;
  const report = (text) => {
    const notice = byId("notice");
    notice.textContent = text;
    notice.hidden = false;
    clearTimeout(report.timer);
    report.timer = setTimeout(() => { notice.hidden = true; }, 8000);
  };
  const cardOf = (row) => place.querySelector(`.card[data-row="${row}"]`);
  const marks = new Marks(place.dataset.job, cardOf, report);
  const mayWrite = place.dataset.mayWrite === "yes";
  const decide = (cards, key) => {
    const markFor = decisionFor(key, place);
    if (markFor === null) return false;
    const marked = cards.filter((card) => markFor(card) !== null);
    if (!mayWrite) report("This key may only read. Sign in with one that has the scope write.");
    else if (marked.length === 0) report("No other class fits better: choose one with 1 to 9, or on the page of the image.");
    else marks.toggle(marked, markFor);
    return mayWrite && marked.length > 0;
  };
  if (place.id === "one") startOne(place, marks, decide);
  else startGrid(place, marks, decide);
  document.addEventListener("keydown", (event) => {
    if (isPlain(event) && event.key === "?") {
      event.preventDefault();
      byId("keys").showModal();
    }
  });
}

const isPlain = (event) =>
  !(event.ctrlKey || event.metaKey || event.altKey || event.target.closest(TYPED) || document.querySelector("dialog[open]"));

// The mark that a key gives to a card, null where no class fits better; null for other keys.
function decisionFor(key, place) {
  const simple = { k: "keep", d: "drop" }[key.toLowerCase()];
  if (simple) return () => ({ mark: simple, label: null });
  const relabel = (label) => (label ? { mark: "relabel", label } : null);
  if (key.toLowerCase() === "r") return (card) => relabel(card.dataset.nearest);
  if (!/^[1-9]$/.test(key) || !place.dataset.digits) return null;
  const label = JSON.parse(place.dataset.digits)[Number(key) - 1];
  return label === undefined ? null : () => relabel(label);
}

function startGrid(place, marks, decide) {
  const cards = () => [...place.querySelectorAll(".card")];
  const focus = (card) => card && card.querySelector(".look").focus();
  const selected = () => [...place.querySelectorAll(".card.selected")];
  const unselect = () => selected().forEach((card) => card.classList.remove("selected"));
  let anchor = null;

  const more = async (then) => {
    const link = place.querySelector(".more a");
    if (!link) return;
    const before = cards().length;
    const watcher = new MutationObserver(() => {
      const now = cards();
      if (now.length === before) return;
      watcher.disconnect();
      then(now[before]);
    });
    watcher.observe(place, { childList: true, subtree: true });
    link.click();
  };

  const select = (list, from, to) => {
    unselect();
    const [low, high] = [Math.min(from, to), Math.max(from, to)];
    list.slice(low, high + 1).forEach((card) => card.classList.add("selected"));
    byId("announcer").textContent = `${high - low + 1} selected`;
  };

  const move = (event, list, at) => {
    const columns = Math.max(1, list.findIndex((card) => card.offsetTop > list[0].offsetTop));
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -at, End: list.length - 1 - at };
    if (!(event.key in steps)) return false;
    event.preventDefault();
    const wanted = at + steps[event.key];
    if (wanted >= list.length && event.key.startsWith("Arrow")) more(focus);
    const target = Math.min(list.length - 1, Math.max(0, wanted));
    if (event.shiftKey) {
      if (anchor === null) anchor = at;
      select(list, anchor, target);
    } else {
      anchor = null;
      unselect();
    }
    focus(list[target]);
    return true;
  };

  document.addEventListener("keydown", (event) => {
    if (!isPlain(event)) return;
    const list = cards();
    const card = document.activeElement?.closest?.(".card");
    if (event.key === "/") {
      event.preventDefault();
      document.querySelector(".side-box").open = true;
      byId("q").focus();
      return;
    }
    if (!card) {
      if (event.key.startsWith("Arrow") && list.length && document.activeElement === document.body) {
        event.preventDefault();
        focus(list[0]);
      }
      return;
    }
    const at = list.indexOf(card);
    if (move(event, list, at)) return;
    if (event.key === "Escape") unselect();
    if (event.key.toLowerCase() === "u") {
      const row = marks.undo();
      if (row !== null) focus(place.querySelector(`.card[data-row="${row}"]`));
      return;
    }
    const chosen = selected();
    const several = chosen.length > 1;
    if (!decide(several ? chosen : [card], event.key)) return;
    if (several) {
      unselect();
      anchor = null;
    } else if (at + 1 < list.length) focus(list[at + 1]);
    else more(focus);
  });
}

function startOne(place, marks, decide) {
  const card = place.querySelector(".card");
  const press = (form) => {
    for (const button of form.querySelectorAll("[aria-pressed]")) {
      const label = button.value === "relabel" ? card.dataset.nearest : "";
      const isOn = card.dataset.mark === button.value && (card.dataset.label || "") === label;
      button.setAttribute("aria-pressed", String(isOn));
    }
  };
  const form = byId("mark-form");
  if (form) new MutationObserver(() => press(form)).observe(card, { attributes: true });
  document.addEventListener("keydown", (event) => {
    if (!isPlain(event)) return;
    const link = { ArrowLeft: byId("previous"), ArrowRight: byId("next") }[event.key];
    if (link) {
      event.preventDefault();
      link.click();
    } else if (event.key.toLowerCase() === "u") marks.undo();
    else decide([card], event.key);
  });
}
