// Colours for code: comments, texts, numbers and keywords of common languages, found without understanding more.

import { element } from "./elements.js";

/** Longer code has no colours. */
const LONGEST = 60_000;

const C_WORDS =
  "break case const continue default do else enum extern for goto if return sizeof static struct switch typedef union " +
  "void volatile while int char long short float double unsigned signed bool true false NULL";
const JS_WORDS =
  "async await break case catch class const continue default delete do else export extends false finally for from " +
  "function if import in instanceof let new null of return static super switch this throw true try typeof undefined " +
  "var void while yield interface type enum implements private public readonly as";
const SQL_WORDS =
  "select from where and or not in is null as join left right inner outer on group by order having limit insert into " +
  "values update set delete create table index primary key foreign references union all distinct case when then else end";

/** What begins a comment, what encloses texts, and the words that are the language's own. */
const FAMILIES = [
  {
    names: "c h cpp c++ cc hpp java cs csharp kotlin kt swift dart php scala glsl cuda",
    slashes: true,
    words: `${C_WORDS} class public private protected new delete this throw try catch finally import package namespace
      using template typename virtual override final abstract interface extends implements super string var val fun let
      func null nullptr auto constexpr foreach echo function in is when guard`,
  },
  { names: "js javascript ts typescript jsx tsx mjs", slashes: true, backticks: true, words: JS_WORDS },
  {
    names: "rust rs",
    slashes: true,
    quotes: '"',
    words: `as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move
      mut pub ref return self Self static struct super trait true type unsafe use where while`,
  },
  {
    names: "go golang",
    slashes: true,
    backticks: true,
    words: `break case chan const continue default defer else fallthrough for func go goto if import interface map package
      range return select struct switch type var nil true false`,
  },
  {
    names: "python py",
    hash: true,
    triple: true,
    words: `and as assert async await break class continue def del elif else except False finally for from global if import
      in is lambda None nonlocal not or pass raise return True try while with yield match case self`,
  },
  {
    names: "sh bash zsh shell console",
    hash: true,
    words: `if then else elif fi for while do done case esac in function return export local echo cd set unset exit source
      sudo`,
  },
  { names: "ruby rb perl pl", hash: true, words: `${JS_WORDS} def end elsif unless module require puts nil self my sub use` },
  { names: "yaml yml toml ini dockerfile makefile r", hash: true, words: "true false null yes no on off" },
  { names: "json json5 jsonc", slashes: true, words: "true false null" },
  { names: "sql", dashes: true, words: `${SQL_WORDS} ${SQL_WORDS.toUpperCase()}` },
  { names: "lua haskell hs", dashes: true, words: `and break do else elseif end false for function if in let local nil not
      or repeat return then true until while where data type module import case of class instance` },
  { names: "css scss less", slashes: true, words: "important" },
  { names: "html xml svg", markup: true, words: "" },
];

const NUMBER = String.raw`\b(?:0[xX][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)`;

const readers = new Map();

/** The nodes for code in a language; one text if the language is not known. */
export function coloured(code, language) {
  const reader = code.length > LONGEST ? null : readerOf(language.toLowerCase());
  if (!reader) return [code];
  const nodes = [];
  let end = 0;
  for (const found of code.matchAll(reader.pattern)) {
    const kind = kindOf(found.groups, reader);
    if (!kind) continue;
    if (found.index > end) nodes.push(code.slice(end, found.index));
    nodes.push(element("span", { class: `code-${kind}` }, found[0]));
    end = found.index + found[0].length;
  }
  nodes.push(code.slice(end));
  return nodes;
}

function kindOf({ comment, text, number, word }, { markup, words }) {
  if (comment !== undefined) return "comment";
  if (text !== undefined) return "text";
  if (number !== undefined) return "number";
  return markup || words.has(word) ? "word" : null;
}

function readerOf(language) {
  if (!readers.has(language)) {
    const family = FAMILIES.find(({ names }) => names.split(" ").includes(language));
    readers.set(language, family ? readerOfFamily(family) : null);
  }
  return readers.get(language);
}

function readerOfFamily(family) {
  return { pattern: patternOf(family), markup: family.markup, words: new Set(family.words.split(/\s+/)) };
}

/** One expression for all of a language. What has no end ends with the code. */
function patternOf({ slashes, hash, dashes, markup, triple, backticks, quotes = "\"'" }) {
  const comments = [
    slashes && String.raw`\/\/[^\n]*|\/\*[^]*?(?:\*\/|$)`,
    hash && String.raw`(?<![\w$])#[^\n]*`,
    dashes && String.raw`--[^\n]*`,
    markup && "<!--[^]*?(?:-->|$)",
  ];
  const enclosed = (mark) => String.raw`${mark}(?:\\[^]|[^${mark}\\\n])*${mark}?`;
  const texts = [
    triple && String.raw`"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)`,
    backticks && "`(?:\\\\[^]|[^`\\\\])*`?",
    ...[...quotes].map(enclosed),
  ];
  const either = (list) => list.filter(Boolean).join("|") || "(?!)";
  const word = markup ? String.raw`<\/?[\w:-]+|\/?>` : String.raw`[A-Za-z_]\w*`;
  return new RegExp(`(?<comment>${either(comments)})|(?<text>${either(texts)})|(?<number>${NUMBER})|(?<word>${word})`, "g");
}
