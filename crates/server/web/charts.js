// Small charts, drawn as SVG: lines over time, a map of pages, marks on a logarithmic scale.

import { drawing } from "./elements.js";

const MARGIN = { top: 8, right: 0, bottom: 20, left: 36 };
/** Samples further apart are not connected: the page did not poll in between. */
const GAP_SECONDS = 5;
/** Possible time ranges of a chart, in seconds: the smallest that holds all samples. */
const SPANS = [60, 120, 300];
const MOST_CELLS = 320;
/** Grid lines: powers of ten, in seconds. */
const POWERS = [-3, -2, -1, 0, 1];

/** Lines over the last minutes; `lines` are lists of [seconds ago, value] with a class. */
export function timeChart({ node, lines, label }) {
  const [width, height] = [node.clientWidth, node.clientHeight];
  const inner = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
  if (inner.width <= 0 || inner.height <= 0) return;
  const top = niceTop(Math.max(0, ...lines.flatMap(({ points }) => points.map(([, value]) => value))));
  const oldest = Math.max(0, ...lines.map(({ points }) => points[0]?.[0] ?? 0));
  const seconds = SPANS.find((span) => oldest <= span) ?? SPANS.at(-1);
  const x = (ago) => MARGIN.left + inner.width * (1 - Math.min(ago, seconds) / seconds);
  const y = (value) => MARGIN.top + inner.height * (1 - value / top);
  const grid = [0, 0.5, 1].flatMap((part) => [
    drawing("line", { class: "grid", x1: MARGIN.left, x2: width, y1: y(top * part), y2: y(top * part) }),
    drawing(
      "text",
      { class: "tick", x: MARGIN.left - 8, y: y(top * part) + 4, "text-anchor": "end" },
      short(top * part),
    ),
  ]);
  const times = [
    [seconds, `${seconds / 60} min ago`, "start"],
    [0, "now", "end"],
  ].map(([ago, text, anchor]) =>
    drawing("text", { class: "tick", x: x(ago), y: height - 4, "text-anchor": anchor }, text),
  );
  const drawn = lines.flatMap(({ points, name }) =>
    runs(points.filter(([ago]) => ago <= seconds)).flatMap((run) => {
      const path = run
        .map(([ago, value], index) => `${index === 0 ? "M" : "L"}${x(ago).toFixed(1)} ${y(value).toFixed(1)}`)
        .join("");
      const area = `${path}L${x(run.at(-1)[0]).toFixed(1)} ${y(0)}L${x(run[0][0]).toFixed(1)} ${y(0)}Z`;
      return [drawing("path", { class: `area ${name}`, d: area }), drawing("path", { class: `line ${name}`, d: path })];
    }),
  );
  node.replaceChildren(picture(width, height, label, [...grid, ...times, ...drawn]));
}

/** Cells for KV cache pages. With many pages, one cell stands for several; returns how many. */
export function poolMap({ node, counts, label }) {
  const total = counts.reduce((sum, { count }) => sum + count, 0);
  const perCell = Math.max(1, Math.ceil(total / MOST_CELLS));
  const cells = Math.ceil(total / perCell);
  const [width, height] = [node.clientWidth, node.clientHeight];
  if (width === 0 || cells === 0) return perCell;
  const step = Math.min(22, cellStep(cells, width, height));
  const columns = Math.max(1, Math.floor(width / step));
  const size = step - Math.max(1, Math.round(step * 0.2));
  let filled = 0;
  let before = 0;
  const paths = counts.map(({ count, name }) => {
    before += count;
    // Every count above zero gets at least one cell.
    const end = Math.min(cells, Math.max(Math.round(before / perCell), filled + (count > 0 ? 1 : 0)));
    let path = "";
    for (; filled < end; filled += 1) {
      path += `M${(filled % columns) * step} ${Math.floor(filled / columns) * step}h${size}v${size}h-${size}z`;
    }
    return drawing("path", { class: `cell ${name}`, d: path });
  });
  const used = Math.ceil(cells / columns) * step;
  node.replaceChildren(picture(width, Math.min(height, used), label, paths));
  return perCell;
}

/** Percentiles on a logarithmic scale from a tenth of a millisecond to a hundred seconds. */
export function rangeRow({ low, middle, high }) {
  const ticks = POWERS.map((power) =>
    drawing("line", { class: "grid", x1: `${place(10 ** power)}%`, x2: `${place(10 ** power)}%`, y1: -10, y2: 30 }),
  );
  const dots = [
    [high, "p99"],
    [middle, "p95"],
    [low, "p50"],
  ].map(([value, name]) => drawing("circle", { class: `dot ${name}`, cx: `${place(value)}%`, cy: 10, r: 4.5 }));
  const bar = drawing("line", { class: "span", x1: `${place(low)}%`, x2: `${place(high)}%`, y1: 10, y2: 10 });
  return drawing("svg", { class: "range-row", height: 20, "aria-hidden": "true" }, ...ticks, bar, ...dots);
}

/** Labels of every second grid line. */
export function rangeScale() {
  const texts = POWERS.filter((power) => power % 2 !== 0).map((power) =>
    drawing(
      "text",
      { class: "tick", x: `${place(10 ** power)}%`, y: 14, "text-anchor": "middle" },
      duration(10 ** power),
    ),
  );
  return drawing("svg", { class: "range-row", height: 20, "aria-hidden": "true" }, ...texts);
}

/** A number, formatted short. */
export function short(value) {
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)}M`;
  if (value >= 1e4) return `${Math.round(value / 1e3)}k`;
  if (value >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString("en");
  return value.toFixed(1);
}

/** A duration, formatted short. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds >= 100) return `${Math.round(seconds)} s`;
  const [value, unit] = seconds >= 1 ? [seconds, "s"] : [seconds * 1000, "ms"];
  return `${value >= 10 ? Math.round(value) : Number(value.toPrecision(2))} ${unit}`;
}

/** Position of a duration on the logarithmic scale, in percent. */
function place(seconds) {
  return 4 + 92 * Math.min(1, Math.max(0, (Math.log10(Math.max(seconds, 1e-4)) + 4) / 6));
}

function picture(width, height, label, children) {
  return drawing(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    ...children,
  );
}

/** The next round number, at least 2: halves of it are readable too. */
function niceTop(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 2)));
  return power * [1, 2, 3, 4, 6, 8, 10].find((factor) => factor * power >= Math.max(value, 2));
}

/** The largest cell size with which this many cells fit. */
function cellStep(cells, width, height) {
  let step = Math.floor(Math.sqrt((width * height) / cells)) + 1;
  while (step > 3 && Math.floor(width / step) * Math.floor(height / step) < cells) step -= 1;
  return step;
}

/** Points, split where there are gaps. */
function runs(points) {
  const found = [];
  points.forEach((point, index) => {
    if (index === 0 || points[index - 1][0] - point[0] > GAP_SECONDS) found.push([]);
    found.at(-1).push(point);
  });
  return found;
}
