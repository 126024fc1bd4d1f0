// The switch between light and dark, which is chosen before a page is drawn.

import { byId, storage } from "./page.js";

const THEMES = ["auto", "light", "dark"];
export const THEME_KEY = "difficulty-theme";

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  if (byId("theme")) byId("theme").textContent = `Theme: ${theme}`;
  document.dispatchEvent(new Event("themechange"));
}

function restoreTheme() {
  const stored = storage.get(THEME_KEY);
  setTheme(THEMES.includes(stored) ? stored : "auto");
}

function offerThemes() {
  byId("theme").hidden = false;
  byId("theme").addEventListener("click", () => {
    const current = THEMES.indexOf(document.documentElement.dataset.theme || "auto");
    const theme = THEMES[(current + 1) % THEMES.length];
    storage.set(THEME_KEY, theme);
    setTheme(theme);
  });
  restoreTheme();
}

// A report has its scripts at the end, a page of the service this one at the start.
if (byId("theme")) offerThemes();
else {
  restoreTheme();
  document.addEventListener("DOMContentLoaded", offerThemes);
}
