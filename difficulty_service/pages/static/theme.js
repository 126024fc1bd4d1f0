// What every page uses, and the switch between light and dark, chosen before a page is drawn.

const byId = (id) => document.getElementById(id);
const readJson = (id) => JSON.parse(byId(id).textContent);

// Browsers may forbid storage, also for pages that are opened as files.
const storage = {
  get(key) {
    try { return window.localStorage.getItem(key); } catch { return null; }
  },
  set(key, value) {
    try { window.localStorage.setItem(key, value); return true; } catch { return false; }
  },
};

const THEMES = ["auto", "light", "dark"];
const THEME_KEY = "difficulty-theme";

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
