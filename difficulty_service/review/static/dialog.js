// The dialog that shows one doubtful image between typical images of both classes.

function typicalPictures(rows, name) {
  return rows.flatMap((row) => {
    const known = document.querySelector(`img[data-row="${row}"]`);
    if (!known) return [];
    const item = document.createElement("li"), picture = document.createElement("img");
    picture.src = known.src;
    picture.alt = `typical ${name}`;
    item.append(picture);
    return [item];
  });
}

function fillDialog(review) {
  const index = review.current, sample = review.sample(index), names = review.data.names;
  const given = names[sample.label], nearest = names[sample.nearest];
  const shown = review.button(review.cards[index]).firstElementChild.cloneNode(true);
  shown.removeAttribute("data-row");
  shown.removeAttribute("loading");
  byId("dialog").dataset.index = index;
  byId("dialog-picture").replaceChildren(shown);
  byId("dialog-title").textContent = `${given}, or ${nearest}?`;
  const parts = [sample.id, `${review.data.doubt} ${sample.doubt.toFixed(1)}`];
  if (sample.difficulty !== null) parts.push(`difficulty ${sample.difficulty.toFixed(1)}`);
  if (sample.percentile === 1) parts.push("the hardest of all images");
  else if (sample.percentile !== null) {
    // Rounded down, so that no image is harder than all of them.
    parts.push(`harder than ${(Math.floor(1000 * sample.percentile) / 10).toFixed(1)} % of all`);
  }
  byId("dialog-text").textContent = parts.join(" · ");
  for (const [id, label] of [["typical-label", sample.label], ["typical-nearest", sample.nearest]]) {
    const pictures = typicalPictures(review.data.typical[label] || [], names[label]);
    byId(id).textContent = pictures.length ? `Typical ${names[label]}` : "";
    byId(`${id}-strip`).replaceChildren(...pictures);
  }
  const mark = review.marks.get(sample.id);
  for (const button of document.querySelectorAll("#dialog [data-mark]")) {
    button.setAttribute("aria-pressed", String(mark?.mark === button.dataset.mark));
    if (button.dataset.mark === "keep") button.textContent = `Keep ${given}`;
    if (button.dataset.mark === "relabel") button.textContent = `Relabel as ${nearest}`;
  }
  const list = review.visible(), place = list.indexOf(review.cards[index]);
  byId("dialog-place").textContent = `${place + 1} of ${list.length}`;
  byId("previous").disabled = place <= 0;
  byId("next").disabled = place >= list.length - 1;
}

function openDialog(review) {
  fillDialog(review);
  byId("dialog").showModal();
  document.querySelector("#dialog [data-mark=relabel]").focus();
}

// Moves by some images; false at an end of the list.
function stepDialog(review, step) {
  const list = review.visible(), place = list.indexOf(review.cards[review.current]) + step;
  if (place < 0 || place >= list.length) return false;
  review.focus(review.cards.indexOf(list[place]), { move: false });
  fillDialog(review);
  return true;
}

// Gives the focus at once to the card that the dialog shows: the browser gives it back to the card
// that opened the dialog, and its event "close" comes after keys that are pressed meanwhile.
function closeDialog(review) {
  const dialog = byId("dialog"), index = Number(dialog.dataset.index);
  delete dialog.dataset.index;
  dialog.close();
  review.focus(index);
}

function markInDialog(review, mark) {
  review.mark(review.current, mark);
  if (!stepDialog(review, 1)) closeDialog(review);
}

function listenInDialog(review) {
  const dialog = byId("dialog");
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) closeDialog(review);
    const mark = event.target.closest("[data-mark]")?.dataset.mark;
    if (mark) markInDialog(review, mark);
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key.toLowerCase(), step = { arrowright: 1, arrowleft: -1 }[key];
    if (key === "escape") { event.preventDefault(); closeDialog(review); }
    else if (step) { event.preventDefault(); stepDialog(review, step); }
    else if (REVIEW_KEYS[key]) markInDialog(review, REVIEW_KEYS[key]);
    else if (key === "u") { review.undo(); fillDialog(review); }
  });
  dialog.addEventListener("close", () => {
    // Its own button and the gesture of a phone close it without `closeDialog`.
    if (dialog.dataset.index) review.focus(Number(dialog.dataset.index));
  });
  byId("previous").addEventListener("click", () => stepDialog(review, -1));
  byId("next").addEventListener("click", () => stepDialog(review, 1));
}

if (byId("grid")) listenInDialog(new Review(readJson("review-data")));

