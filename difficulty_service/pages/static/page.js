// What the scripts of every page use: elements and data by their ids, and the browser's storage.

export const byId = (id) => document.getElementById(id);
export const readJson = (id) => JSON.parse(byId(id).textContent);

// Browsers may forbid storage, also for pages that are opened as files.
export const storage = {
  get(key) {
    try { return window.localStorage.getItem(key); } catch { return null; }
  },
  set(key, value) {
    try { window.localStorage.setItem(key, value); return true; } catch { return false; }
  },
};
