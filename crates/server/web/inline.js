// Markdown within a line: emphasis, code, links. Everything becomes text nodes and a few known elements.

import { element } from "./elements.js";
import { formula } from "./math.js";

/** Deeper nesting is shown as it was written. */
const DEEPEST = 6;
/** Longer labels are treated as text, so that many brackets do not cause repeated searches. */
const LONGEST_LABEL = 1000;
const LONGEST_ADDRESS = 2000;
const LONGEST_FORMULA = 2000;

const SPECIAL = /[\\`*_~[!<\n$]|https?:\/\//g;
const NOTE_MARK = /\[\^([^\]\s]{1,40})\]/y;
const BARE_ADDRESS = /https?:\/\/[^\s<>"'`\\]+/y;
const BRACKETED = /<(https?:\/\/[^\s<>]{1,2000})>/y;
const BREAK = /<br ?\/?>/iy;
const PUNCTUATION = /[!-/:-@[-`{-~]/;
const WORD = /[\p{L}\p{N}]/u;

/** The elements for a mark of emphasis, outermost first. */
const EMPHASIS = {
  "*": ["em"],
  "**": ["strong"],
  "***": ["strong", "em"],
  _: ["em"],
  __: ["strong"],
  ___: ["strong", "em"],
  "~~": ["del"],
};

/** The nodes for a piece of text. */
export function inline(text, depth = 0) {
  const nodes = [];
  let plain = "";
  const flush = () => {
    if (plain !== "") nodes.push(document.createTextNode(plain));
    plain = "";
  };
  // Marks without an end; each is searched for only once.
  const endless = new Set();
  let at = 0;
  while (at < text.length) {
    SPECIAL.lastIndex = at;
    const next = depth < DEEPEST ? SPECIAL.exec(text) : null;
    const start = next ? next.index : text.length;
    plain += text.slice(at, start);
    if (!next) break;
    const found = special({ text, at: start, depth, endless });
    if (found) {
      if (found.node) {
        flush();
        nodes.push(found.node);
      } else {
        plain += found.plain;
      }
      at = found.end;
    } else {
      plain += next[0];
      at = start + next[0].length;
    }
  }
  flush();
  return nodes;
}

/** The node or text that begins here, and its end; null if it is a plain character. */
function special(place) {
  const { text, at } = place;
  switch (text[at]) {
    case "\n":
      return { node: element("br"), end: at + 1 };
    case "$":
      return text[at + 1] === "$" ? enclosed(place, "$$", "$$", true) : inDollars(place);
    case "\\":
      if (text[at + 1] === "(") return enclosed(place, "\\(", "\\)", false);
      if (text[at + 1] === "[") return enclosed(place, "\\[", "\\]", true);
      return PUNCTUATION.test(text[at + 1] ?? "") ? { plain: text[at + 1], end: at + 2 } : null;
    case "`":
      return code(place);
    case "[":
      return noteMark(text, at) ?? link(place, at);
    // An image would be loaded from another server; its name and address are shown instead.
    case "!":
      return text[at + 1] === "[" ? link(place, at + 1) : null;
    case "<":
      return angle(text, at);
    case "h":
      return bareAddress(text, at);
    default:
      return emphasis(place);
  }
}

function code({ text, at, endless }) {
  const run = runLength(text, at);
  const mark = "`".repeat(run);
  let end = endless.has(mark) ? -1 : at + run;
  for (;;) {
    end = end < 0 ? -1 : text.indexOf(mark, end);
    if (end < 0) {
      endless.add(mark);
      return { plain: mark, end: at + run };
    }
    const length = runLength(text, end);
    if (length === run) break;
    end += length;
  }
  const inner = text.slice(at + run, end).replaceAll("\n", " ");
  const padded = inner.length > 2 && inner.startsWith(" ") && inner.endsWith(" ") && inner.trim() !== "";
  return { node: element("code", {}, padded ? inner.slice(1, -1) : inner), end: end + run };
}

/** A formula between two marks; the first mark as it is if there is no second. */
function enclosed({ text, at, endless }, opening, closing, display) {
  const from = at + opening.length;
  const end = endless.has(closing) ? -1 : text.indexOf(closing, from);
  if (end < 0) endless.add(closing);
  if (end <= from || end - from > LONGEST_FORMULA) return { plain: opening, end: from };
  return { node: formula(text.slice(from, end).trim(), display), end: end + closing.length };
}

/** A formula between dollar signs, which amounts of money have too: a formula touches both of its signs, and no digit follows. */
function inDollars({ text, at, endless }) {
  const literal = { plain: "$", end: at + 1 };
  if (endless.has("$") || /^\s?$/.test(text[at + 1] ?? "")) return literal;
  const last = Math.min(text.length, at + LONGEST_FORMULA);
  for (let end = at + 1; end < last; end += 1) {
    if (text[end] === "\\") end += 1;
    else if (text[end] === "$") {
      if (/\s/.test(text[end - 1]) || /\d/.test(text[end + 1] ?? "")) return literal;
      return { node: formula(text.slice(at + 1, end), false), end: end + 1 };
    }
  }
  if (last === text.length) endless.add("$");
  return literal;
}

function noteMark(text, at) {
  NOTE_MARK.lastIndex = at;
  const name = NOTE_MARK.exec(text)?.[1];
  return name ? { node: element("sup", {}, name), end: NOTE_MARK.lastIndex } : null;
}

function emphasis({ text, at, depth, endless }) {
  const run = runLength(text, at);
  const mark = text[at].repeat(run);
  const literal = { plain: mark, end: at + run };
  const inWord = text[at] === "_" && WORD.test(text[at - 1] ?? "");
  if (!EMPHASIS[mark] || endless.has(mark) || inWord || /^\s?$/.test(text[at + run] ?? "")) return literal;
  const end = emphasisEnd(text, at + run, mark);
  if (end < 0) {
    endless.add(mark);
    return literal;
  }
  const [outer, innermost] = EMPHASIS[mark];
  const inner = inline(text.slice(at + run, end), depth + 1);
  const node = innermost ? element(outer, {}, element(innermost, {}, ...inner)) : element(outer, {}, ...inner);
  return { node, end: end + run };
}

/** Position of the mark that ends an emphasis, or -1. Three marks in a row end a nested pair. */
function emphasisEnd(text, from, mark) {
  for (let at = text.indexOf(mark, from); at >= 0;) {
    const run = runLength(text, at);
    const fits = (run === mark.length || (run === 3 && mark.length < 3)) && !/\s/.test(text[at - 1]);
    const inWord = mark[0] === "_" && WORD.test(text[at + run] ?? "");
    if (fits && !inWord && at > from) return at + run - mark.length;
    at = text.indexOf(mark, at + run);
  }
  return -1;
}

function link({ text, at, depth }, bracket) {
  const close = labelEnd(text, bracket);
  if (close < 0 || text[close + 1] !== "(") return null;
  const end = addressEnd(text, close + 2);
  if (end < 0) return null;
  const [address] = text
    .slice(close + 2, end)
    .trim()
    .replace(/^<|>$/g, "")
    .split(/\s/);
  const safe = safeAddress(address);
  // Addresses with other schemes are shown, but not linked.
  if (!safe) return { plain: text.slice(at, end + 1), end: end + 1 };
  const label = text.slice(bracket + 1, close);
  return { node: anchor(safe, label === "" ? [address] : inline(label, depth + 1)), end: end + 1 };
}

function labelEnd(text, bracket) {
  let depth = 0;
  for (let at = bracket; at < Math.min(text.length, bracket + LONGEST_LABEL); at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === "[") depth += 1;
    else if (text[at] === "]" && --depth === 0) return at;
  }
  return -1;
}

function addressEnd(text, from) {
  let depth = 1;
  for (let at = from; at < Math.min(text.length, from + LONGEST_ADDRESS); at += 1) {
    if (text[at] === "\n") return -1;
    if (text[at] === "(") depth += 1;
    else if (text[at] === ")" && --depth === 0) return at;
  }
  return -1;
}

function angle(text, at) {
  BREAK.lastIndex = at;
  if (BREAK.test(text)) return { node: element("br"), end: BREAK.lastIndex };
  BRACKETED.lastIndex = at;
  const address = BRACKETED.exec(text)?.[1];
  const safe = address && safeAddress(address);
  return safe ? { node: anchor(safe, [address]), end: at + address.length + 2 } : null;
}

function bareAddress(text, at) {
  BARE_ADDRESS.lastIndex = at;
  let address = BARE_ADDRESS.exec(text)?.[0] ?? "";
  // The end of a sentence is not part of the address.
  while (/[.,;:!?*_~\]]$/.test(address) || (address.endsWith(")") && !address.includes("("))) {
    address = address.slice(0, -1);
  }
  const safe = safeAddress(address);
  return safe ? { node: anchor(safe, [address]), end: at + address.length } : null;
}

/** The address, if it is safe to link. */
function safeAddress(address) {
  if (!/^https?:\/\//i.test(address) || !URL.canParse(address)) return null;
  const { protocol, href } = new URL(address);
  return protocol === "http:" || protocol === "https:" ? href : null;
}

function anchor(href, children) {
  return element("a", { href, title: href, target: "_blank", rel: "noopener noreferrer" }, ...children);
}

function runLength(text, at) {
  let end = at;
  while (text[end] === text[at]) end += 1;
  return end - at;
}
