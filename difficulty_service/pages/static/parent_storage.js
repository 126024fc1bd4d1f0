// In a frame of a notebook, its parent keeps the marks: of a page without an origin, browsers keep
// nothing.

import { storage } from "./page.js";
import { THEME_KEY } from "./theme.js";

const inMemory = { theme: null, marks: null, marksKey: null };

storage.get = (key) => {
  if (key === THEME_KEY) return inMemory.theme;
  inMemory.marksKey = key;
  return inMemory.marks;
};

storage.set = (key, value) => {
  if (key === THEME_KEY) inMemory.theme = value;
  else {
    inMemory.marks = value;
    // To any address: a notebook has no fixed one, and it is the notebook that made this page.
    window.parent.postMessage({ difficulty: "marks", value }, "*");
  }
  return true;
};

window.addEventListener("message", ({ source, data }) => {
  if (source !== window.parent || data?.difficulty !== "marks") return;
  inMemory.marks = data.value;
  window.dispatchEvent(new StorageEvent("storage", { key: inMemory.marksKey }));
});

window.parent.postMessage({ difficulty: "ready" }, "*");
