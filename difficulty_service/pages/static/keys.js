// The keys of a review, in reports and on the pages of the service.

import { byId, readJson } from "./page.js";

// The marks that a page offers, as mark_kinds.py has them.
export const MARK_KINDS = byId("mark-kinds") ? readJson("mark-kinds") : [];

// What each key does and to what. Places that know no such action leave the key to the browser.
const KEYS = {
  u: ["undo"],
  arrowright: ["move", "right"], arrowleft: ["move", "left"],
  arrowdown: ["move", "down"], arrowup: ["move", "up"],
  home: ["move", "first"], end: ["move", "last"],
  x: ["select"], s: ["row"], "ctrl+a": ["all"], l: ["like"],
  z: ["pixels"], "/": ["search"], "?": ["help"], escape: ["close"],
  ...Object.fromEntries(MARK_KINDS.map(({ key, mark }) => [key, ["mark", mark]])),
  ...Object.fromEntries(Array.from("123", (digit) => [digit, ["mark", digit]])),
};
const TYPED = "input, select, textarea, [contenteditable]";

// Calls the function of `actions` for a key, which gives false where the key is not for it. Other keys
// with a modifier, typed text and keys for an open dialog other than this one are left alone.
export function listenForKeys(target, actions, dialog = null) {
  target.addEventListener("keydown", (event) => {
    const isHeld = event.ctrlKey || event.metaKey;  // as Macs have ⌘ in place of Ctrl
    const [action, what] = KEYS[`${isHeld ? "ctrl+" : ""}${event.key.toLowerCase()}`] ?? [];
    if (event.altKey || (isHeld && event.shiftKey) || !(action in actions)) return;
    if (event.target.closest(TYPED) || document.querySelector("dialog[open]") !== dialog) return;
    if (actions[action](what, event) !== false) event.preventDefault();
  });
}

export const showKeys = () => byId("keys").showModal();

// Pictures are smooth or show their pixels, which small ones hide otherwise.
export const togglePixels = () => { document.documentElement.classList.toggle("pixels"); };

// Place in a list of cards to which a move leads from another one; may be beyond its ends.
export function placeAfter(move, place, cards) {
  const below = cards.findIndex((card) => card.offsetTop > cards[0].offsetTop);
  const columns = below < 1 ? cards.length : below;
  return {
    right: place + 1, left: place - 1, down: place + columns, up: place - columns,
    first: 0, last: cards.length - 1,
  }[move];
}

if (byId("keys")) listenForKeys(document, { help: showKeys, pixels: togglePixels });
