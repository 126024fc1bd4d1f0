// What colours the points of a map: any column of categories or numbers.

import { MARK_KINDS } from "./keys.js";
import { LEVELS } from "./map_data.js";

const CLASS_COLOURS = [
  "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1",
  "#9c755f", "#76b7b2", "#d4a72c", "#ff9da7", "#5b6770",
  "#1f9ed1", "#8a5cc2", "#2f7d4f", "#b0413e", "#c85c9e",
  "#6b8e23", "#274c77", "#e07a5f", "#3d9991", "#7a5230",
];
const OTHER_COLOUR = "#a8aca5", HARD_COLOUR = "#d75016", CALM_COLOUR = "#8c9892", AMBER_COLOUR = "#e0a526";
const FAINT = 0.3, CLEAR = 0.8, MUTED = 0.14;

const bytesOf = (hex) => [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));
const hexOf = (bytes) => `#${bytes.map((each) => Math.round(each).toString(16).padStart(2, "0")).join("")}`;

// Of a position from 0 to 1 on a scale of numbers; most of the range is for its upper fifth.
function scaleColour(position) {
  const share = position < 0.8 ? position * 0.15 : 0.12 + (position - 0.8) * 4.4;
  const calm = bytesOf(CALM_COLOUR), hard = bytesOf(HARD_COLOUR);
  return hexOf(calm.map((each, part) => each + (hard[part] - each) * Math.min(1, share)));
}

// The colours of a column. A column is one of
//   { values, low, high, texts }: numbers; NaN or a number outside of the range low to high is no
//     value. `texts` are the words for positions from 0 to 1 on that range: [[0.3, "easy"], …];
//   { values, names, shown, many }: categories, each an index of `names`. `shown` are those with a
//     colour of their own, those drawn first in front: [{ category, colour, opacity }, …]; without
//     it, they are the twenty with the most points. `many` names what the others are: "classes".
// `chosen` are the categories that a person has chosen: all others are grey.
// The answer has a level for each point, below 256; the colour and opacity of each level, of which
// later ones are drawn over earlier ones; and the entries of the key.
export function colourBy(column, chosen = new Set()) {
  return column.names ? colourCategories(column, chosen) : colourNumbers(column);
}

function colourNumbers({ values, low, high, texts }) {
  const steps = 254, levels = new Uint8Array(values.length);
  for (let index = 0; index < values.length; index += 1) {
    const position = (values[index] - low) / (high - low);
    levels[index] = position >= 0 && position <= 1 ? 1 + Math.round(position * steps) : 0;
  }
  const palette = [[OTHER_COLOUR, MUTED]];
  for (let step = 0; step <= steps; step += 1) {
    palette.push([scaleColour(step / steps), 0.35 + 0.6 * (step / steps) ** 2]);
  }
  return { levels, palette, key: texts.map(([position, text]) => ({ colour: scaleColour(position), text })) };
}

function colourCategories(column, chosen) {
  const { values, names, many = "values" } = column, counts = countsOf(values, column);
  const frequent = [...counts.keys()].filter((each) => names[each] !== undefined)
    .sort((one, other) => counts.get(other) - counts.get(one) || one - other);
  const shown = column.shown ?? frequent.slice(0, CLASS_COLOURS.length)
    .map((category, place) => ({ category, colour: CLASS_COLOURS[place], opacity: CLEAR }));
  const isShown = new Set(shown.map(({ category }) => category));
  // A category that was chosen by its name takes the colour of one that is grey now.
  const free = shown.filter(({ category }) => !chosen.has(category)).map(({ colour }) => colour);
  const added = [...chosen].filter((each) => !isShown.has(each))
    .map((category) => ({ category, colour: free.pop() ?? OTHER_COLOUR, opacity: CLEAR }));
  const palette = [[OTHER_COLOUR, chosen.size ? MUTED : FAINT]], levelOf = new Map();
  for (const { category, colour, opacity } of [...shown, ...added]) {
    if (chosen.size && !chosen.has(category)) continue;
    levelOf.set(category, palette.length);
    palette.push([colour, chosen.size ? CLEAR : opacity]);
  }
  const levels = new Uint8Array(values.length);
  for (let index = 0; index < values.length; index += 1) levels[index] = levelOf.get(values[index]) ?? 0;
  // What is drawn in front comes first, of categories alike the first in their order.
  const inOrder = [...shown].sort((one, other) => one.category - other.category);
  const entries = [...(column.shown ? [...shown].reverse() : inOrder), ...added];
  const key = entries.filter(({ category }) => column.shown || counts.has(category))
    .map(({ category, colour }) => ({ category, text: names[category], colour: !chosen.size || chosen.has(category) ? colour : OTHER_COLOUR }));
  const others = frequent.length - key.length;
  if (others > 0) key.push({ colour: OTHER_COLOUR, text: `the other ${others} ${many}` });
  return { levels, palette, key };
}

// Number of points of each category, counted once a column.
function countsOf(values, column) {
  if (column.counted === values) return column.counts;
  const counts = new Map();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return Object.assign(column, { counted: values, counts }).counts;
}

// Four bytes of colour for each point, and the points in the order of their levels.
export function paintLevels({ levels, palette }) {
  const colours = new Uint8Array(4 * levels.length), order = new Uint32Array(levels.length);
  const bytes = palette.map(([colour, opacity]) => [...bytesOf(colour), Math.round(255 * opacity)]);
  const starts = new Uint32Array(palette.length + 1);
  for (const level of levels) starts[level + 1] += 1;
  for (let level = 0; level < palette.length; level += 1) starts[level + 1] += starts[level];
  for (let index = 0; index < levels.length; index += 1) {
    const level = levels[index];
    colours.set(bytes[level], 4 * index);
    order[starts[level]] = index;
    starts[level] += 1;
  }
  return [colours, order];
}

// The columns that every map has, by the value of their choice on the page.
export function columnsOf({ columns, names, tiers }) {
  const tierColours = [HARD_COLOUR, AMBER_COLOUR, CALM_COLOUR];
  const hasWrong = columns.tiers.includes(0);
  const shown = [2, 1, 0].filter((category) => category > 0 || hasWrong).map((category) => ({
    category, colour: category === 1 && !hasWrong ? HARD_COLOUR : tierColours[category], opacity: category === 2 ? FAINT : 0.9,
  }));
  return {
    class: { values: columns.labels, names, many: "classes" },
    difficulty: {
      values: columns.percentiles, low: 0, high: LEVELS,
      texts: [[1, "hardest"], [0.9, "harder than 90 %"], [0.3, "easy"]],
    },
    tier: { values: columns.tiers, names: tiers, shown },
  };
}

const LARGEST_VALUE = 65534;  // of map_columns.py

// The values of a column as map_columns.py packs them, and what they mean.
export function unpackColumn({ values, ...meaning }) {
  const bytes = Uint8Array.from(atob(values), (letter) => letter.charCodeAt(0));
  return { ...meaning, values: new Uint16Array(bytes.buffer) };
}

// Such values of points as `colourBy` takes them.
export function besideColumn({ values, names, texts }) {
  return names ? { values, names } : { values, low: 0, high: LARGEST_VALUE, texts };
}

// Of a mark of each point: an index of MARKS.
export const MARKS = ["no mark", ...MARK_KINDS.map(({ mark }) => mark)];

export function markColumn(values) {
  const shown = MARKS.map((_, category) => ({
    category, colour: MARK_KINDS[category - 1]?.colour ?? OTHER_COLOUR, opacity: category ? 0.95 : FAINT,
  }));
  return { values, names: MARKS, shown };
}
