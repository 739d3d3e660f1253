// Markdown as blocks: parsed line by line, drawn as elements, redrawn only where the text has changed.

import { copyButton, element } from "./elements.js";
import { inline } from "./inline.js";
import { formula } from "./math.js";
import { coloured } from "./syntax.js";

/** Deeper nesting is shown as it was written. */
const DEEPEST = 8;
/** Longer texts are shown as plain text. */
const LONGEST = 400_000;
/** The most lines of a formula. */
const FORMULA_LINES = 100;

const FENCE = /^ {0,3}(`{3,}|~{3,}) *([^`\s]{0,40})[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s(.*))?$/;
const RULE = /^ {0,3}([-*_])( *\1){2,} *$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])( +|$)(.*)$/;
const TASK = /^\[([ xX])\] /;
const NOTE = /^ {0,3}\[\^([^\]\s]{1,40})\]: ?(.*)$/;
const DELIMITERS = /^ {0,3}\|?( *:?-+:? *\|)+( *:?-+:? *)?$/;

/** A growing text shown in an element. */
export class Markdown {
  constructor(node) {
    this.node = node;
    this.shown = [];
  }

  /** Shows the text; returns the elements of newly completed blocks. */
  update(text) {
    const blocks = text.length > LONGEST ? [{ kind: "plain", text }] : parse(text.replaceAll("\r\n", "\n").split("\n"));
    const sources = blocks.map((block) => JSON.stringify(block));
    const firstNew = sources.findIndex((source, index) => source !== this.shown[index]);
    const kept = firstNew < 0 ? sources.length : firstNew;
    while (this.node.childNodes.length > kept) this.node.lastChild.remove();
    this.node.append(...blocks.slice(kept).map(draw));
    const complete = Math.max(0, this.shown.length - 1);
    this.shown = sources;
    return [...this.node.childNodes].slice(complete, -1);
  }
}

/** The elements for a whole text. */
export function markdown(text) {
  return parse(text.split("\n")).map(draw);
}

function parse(lines, depth = 0) {
  const blocks = [];
  for (let at = 0; at < lines.length;) {
    if (lines[at].trim() === "") {
      at += 1;
      continue;
    }
    const reader = depth < DEEPEST ? READERS.find(({ begins }) => begins(lines, at)) : undefined;
    const { block, end } = (reader?.read ?? readParagraph)(lines, at, depth);
    blocks.push(block);
    at = end;
  }
  return blocks;
}

/** Blocks other than paragraphs: how they begin and how they are read. */
const READERS = [
  { begins: (lines, at) => FENCE.test(lines[at]), read: readFence },
  { begins: (lines, at) => HEADING.test(lines[at]), read: readHeading },
  { begins: (lines, at) => RULE.test(lines[at]), read: (_, at) => ({ block: { kind: "rule" }, end: at + 1 }) },
  { begins: (lines, at) => QUOTE.test(lines[at]), read: readQuote },
  { begins: (lines, at) => ITEM.test(lines[at]), read: readList },
  { begins: isTable, read: readTable },
  { begins: (lines, at) => formulaEnd(lines, at) !== null, read: readFormula },
  { begins: (lines, at) => NOTE.test(lines[at]), read: readNote },
];

/** What encloses formulas that stand on lines of their own. */
const FORMULA_MARKS = [
  ["$$", "$$"],
  ["\\[", "\\]"],
];

function readParagraph(lines, at, depth) {
  let end = at + 1;
  const stops = () => lines[end].trim() === "" || (depth < DEEPEST && READERS.some(({ begins }) => begins(lines, end)));
  while (end < lines.length && !stops()) end += 1;
  const text = lines
    .slice(at, end)
    .map((line) => line.trim())
    .join("\n");
  return { block: { kind: "paragraph", text }, end };
}

function readFence(lines, at) {
  const [, fence, language] = FENCE.exec(lines[at]);
  const indent = indentOf(lines[at]);
  const closes = (line) => line.trim().length >= fence.length && line.trim() === fence[0].repeat(line.trim().length);
  let end = at + 1;
  while (end < lines.length && !closes(lines[end])) end += 1;
  const text = lines
    .slice(at + 1, end)
    .map((line) => line.slice(Math.min(indent, indentOf(line))))
    .join("\n");
  return { block: { kind: "code", language, text }, end: end + 1 };
}

/** Where the formula that begins here ends, and its marks; null if none begins or it has no end yet. */
function formulaEnd(lines, at) {
  const first = lines[at].trim();
  const marks = FORMULA_MARKS.find(([opening]) => first.startsWith(opening));
  if (!marks) return null;
  const [opening, closing] = marks;
  if (first.length > opening.length && first.indexOf(closing, opening.length) === first.length - closing.length) {
    return { marks, end: at };
  }
  if (first.indexOf(closing, opening.length) >= 0) return null;
  const last = Math.min(lines.length, at + FORMULA_LINES);
  for (let end = at + 1; end < last; end += 1) {
    if (lines[end].trim().endsWith(closing)) return { marks, end };
  }
  return null;
}

function readFormula(lines, at) {
  const {
    marks: [opening, closing],
    end,
  } = formulaEnd(lines, at);
  const text = lines.slice(at, end + 1).join("\n").trim();
  return { block: { kind: "formula", text: text.slice(opening.length, -closing.length).trim() }, end: end + 1 };
}

function readNote(lines, at) {
  const [, name, first] = NOTE.exec(lines[at]);
  let end = at + 1;
  while (end < lines.length && lines[end].trim() !== "" && indentOf(lines[end]) >= 2) end += 1;
  const text = [first, ...lines.slice(at + 1, end)].map((line) => line.trim()).join("\n");
  return { block: { kind: "note", name, text }, end };
}

function readHeading(lines, at) {
  const [, marks, text = ""] = HEADING.exec(lines[at]);
  let end = text.trimEnd().length;
  while (text[end - 1] === "#") end -= 1;
  return { block: { kind: "heading", level: marks.length, text: text.slice(0, end).trim() }, end: at + 1 };
}

function readQuote(lines, at, depth) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  const inner = lines.slice(at, end).map((line) => line.replace(QUOTE, ""));
  return { block: { kind: "quote", blocks: parse(inner, depth + 1) }, end };
}

function readList(lines, at, depth) {
  const [, , marker] = ITEM.exec(lines[at]);
  const margin = indentOf(lines[at]);
  const ordered = /\d/.test(marker);
  const items = [];
  let end = at;
  while (end < lines.length) {
    const found = ITEM.exec(lines[end]);
    if (!found || indentOf(lines[end]) > margin + 3 || /\d/.test(found[2]) !== ordered) break;
    const item = readItem(lines, end, found);
    items.push(parseItem(item.lines, depth));
    end = item.end;
    // Blank lines between items belong to the list, those after it do not.
    let next = end;
    while (next < lines.length && lines[next].trim() === "") next += 1;
    if (next < lines.length && ITEM.test(lines[next]) && indentOf(lines[next]) >= margin) end = next;
  }
  return { block: { kind: "list", ordered, start: ordered ? Number.parseInt(marker, 10) : 1, items }, end };
}

function readItem(lines, at, [, indent, marker, space, first]) {
  const margin = indent.length;
  const inset = margin + marker.length + Math.min(Math.max(space.length, 1), 4);
  const inner = [first];
  let end = at + 1;
  for (; end < lines.length; end += 1) {
    const line = lines[end];
    const blank = line.trim() === "";
    const afterBlank = lines[end - 1].trim() === "";
    // Text directly below an item continues it; after a blank line only indented text does.
    const setIn = indentOf(line) > margin + 1 || line.startsWith("\t");
    const goesOn = setIn || (!afterBlank && !READERS.some(({ begins }) => begins(lines, end)));
    if (!blank && !goesOn) break;
    inner.push(line.startsWith("\t") ? line.slice(1) : line.slice(Math.min(inset, indentOf(line))));
  }
  while (inner.length > 1 && inner.at(-1).trim() === "") {
    inner.pop();
    end -= 1;
  }
  return { lines: inner, end };
}

function parseItem(lines, depth) {
  const task = TASK.exec(lines[0]);
  const rest = task ? [lines[0].slice(task[0].length), ...lines.slice(1)] : lines;
  return { done: task ? task[1] !== " " : null, blocks: parse(rest, depth + 1) };
}

function isTable(lines, at) {
  const next = lines[at + 1] ?? "";
  return lines[at].includes("|") && next.includes("|") && DELIMITERS.test(next);
}

function readTable(lines, at) {
  const side = (cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : "left");
  const sides = cells(lines[at + 1]).map(side);
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|")) end += 1;
  const fitted = (row) => sides.map((_, column) => row[column] ?? "");
  const rows = lines.slice(at + 2, end).map((line) => fitted(cells(line)));
  return { block: { kind: "table", sides, head: fitted(cells(lines[at])), rows }, end };
}

/** The cells of a line, separated by bars, except after a backslash or within code. */
function cells(line) {
  const found = [""];
  let inCode = false;
  const row = line.trim().replace(/^\|/, "").replace(/\|$/, "");
  for (let at = 0; at < row.length; at += 1) {
    if (row[at] === "`") inCode = !inCode;
    if (row[at] === "\\" && row[at + 1] === "|") {
      found[found.length - 1] += "|";
      at += 1;
    } else if (row[at] === "|" && !inCode) {
      found.push("");
    } else {
      found[found.length - 1] += row[at];
    }
  }
  return found.map((cell) => cell.trim());
}

function indentOf(line) {
  return line.length - line.trimStart().length;
}

/** How each kind of block is drawn. */
const DRAW = {
  plain: ({ text }) => element("pre", { class: "plain" }, text),
  paragraph: ({ text }) => element("p", {}, ...inline(text)),
  // The page has headings of its own above those of an answer.
  heading: ({ level, text }) => element(`h${Math.min(level + 2, 6)}`, { class: `heading-${level}` }, ...inline(text)),
  rule: () => element("hr"),
  quote: ({ blocks }) => element("blockquote", {}, ...blocks.map(draw)),
  code: drawCode,
  formula: ({ text }) => element("p", { class: "formula", tabindex: "0" }, formula(text, true)),
  note: ({ name, text }) => element("p", { class: "note-text" }, element("sup", {}, name), " ", ...inline(text)),
  list: drawList,
  table: drawTable,
};

function draw(block) {
  return DRAW[block.kind](block);
}

function drawCode({ language, text }) {
  const head = element(
    "figcaption",
    {},
    element("span", {}, language || "text"),
    copyButton("Copy this code", () => text),
  );
  const body = element("pre", { tabindex: "0", "aria-label": "Code" }, element("code", {}, ...coloured(text, language)));
  return element("figure", { class: "code" }, head, body);
}

function drawList({ ordered, start, items }) {
  const drawn = items.map(({ done, blocks }) => {
    const [first, ...others] = blocks;
    const box = done === null ? null : element("input", { type: "checkbox", disabled: true, checked: done });
    // An item of one paragraph is set tight.
    const lead = first?.kind === "paragraph" ? inline(first.text) : first ? [draw(first)] : [];
    return element("li", { class: done === null ? null : "task" }, box, ...lead, ...others.map(draw));
  });
  return element(ordered ? "ol" : "ul", { start: ordered && start !== 1 ? start : null }, ...drawn);
}

function drawTable({ sides, head, rows }) {
  const row = (name, texts) =>
    element("tr", {}, ...texts.map((text, column) => element(name, { class: `to-${sides[column]}` }, ...inline(text))));
  const table = element(
    "table",
    {},
    element("thead", {}, row("th", head)),
    element("tbody", {}, ...rows.map((texts) => row("td", texts))),
  );
  return element("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" }, table);
}
