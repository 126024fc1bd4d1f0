// The choice between light and dark, made before the page is drawn.
"use strict";
(() => {
  const THEMES = ["auto", "light", "dark"];
  const KEY = "difficulty-theme";
  const read = () => {
    try { return window.localStorage.getItem(KEY); } catch { return null; }
  };
  const write = (theme) => {
    try { window.localStorage.setItem(KEY, theme); } catch { /* this page only */ }
  };
  const apply = (theme) => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  };
  const stored = read();
  let theme = THEMES.includes(stored) ? stored : "auto";
  apply(theme);
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    button.hidden = false;
    button.textContent = `Theme: ${theme}`;
    button.addEventListener("click", () => {
      theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
      write(theme);
      apply(theme);
      button.textContent = `Theme: ${theme}`;
    });
  });
})();
