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

// What speaks against a label in words: log-odds of a wrong one as a probability, which is never all or
// nothing, and a margin as it is.
export function doubtInWords(name, doubt) {
  if (name !== "suspicion") return `${name} ${doubt.toFixed(1)}`;
  const share = 1 / (1 + Math.exp(-doubt));
  const text = share > 0.999 ? "> 99.9" : share < 0.001 ? "< 0.1" : (100 * share).toFixed(1);
  return `${name} ${text}\u00a0%`;
}
