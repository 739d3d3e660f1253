// Files that go with a message: read as text here, counted in tokens by the server, sent before what the user writes.

import { countTokens } from "./api.js";
import { announce, byId, element, icon, iconButton } from "./elements.js";
import { contextLength } from "./frame.js";
import { isPdf, pdfText } from "./pdf.js";

/** The most bytes of a file, and the most characters of its text. */
const LARGEST = 20_000_000;
const LONGEST = 1_000_000;
const MOST_FILES = 20;

/** The files of the message that is being written. */
let chosen = [];

/** What a message says to the model: its files, each in a fence longer than any within it, and then its text. */
export function sentText({ content, files = [] }) {
  const parts = files.map(({ name, text }) => {
    const longest = Math.max(2, ...[...text.matchAll(/`{3,}/g)].map(([run]) => run.length));
    const fence = "`".repeat(longest + 1);
    return `File “${name}”:\n${fence}\n${text.replace(/\n$/, "")}\n${fence}`;
  });
  return [...parts, content].filter((part) => part !== "").join("\n\n");
}

/** The files of the message that is being written, which has none from then on. */
export function takeFiles() {
  const files = chosen.filter(({ problem }) => !problem).map(({ name, text, tokens }) => ({ name, text, tokens }));
  setFiles([]);
  return files.length > 0 ? files : undefined;
}

export const hasFiles = () => chosen.some(({ problem }) => !problem);

/** Puts files into the message that is being written. */
export function setFiles(files) {
  chosen = files.map((file) => ({ ...file }));
  draw();
}

/** Adds files that the user chose, dropped or pasted; `model` counts their tokens. */
export async function addFiles(list, model) {
  for (const file of list) {
    if (chosen.length === MOST_FILES) {
      announce(`At most ${MOST_FILES} files go with a message`);
      return;
    }
    const entry = { name: file.name, text: "", tokens: null, problem: null };
    chosen.push(entry);
    draw();
    try {
      entry.text = await readText(file);
      ({ count: entry.tokens } = await countTokens(sentText({ content: "", files: [entry] }), model));
      const [tokens, context] = [entry.tokens, contextLength()].map((count) => count?.toLocaleString("en"));
      if (entry.tokens > contextLength()) entry.problem = `${tokens} tokens, of which ${context} fit`;
    } catch (error) {
      entry.problem = error.message;
    }
    announce(`${entry.name}: ${state(entry)}`);
    draw();
  }
}

/** Files as a list, with a button each that removes it where `remove` is given. */
export function fileList(files, remove) {
  const item = (file) =>
    element(
      "li",
      { class: file.problem ? "file problem" : "file" },
      icon("file"),
      element("span", { class: "file-name", title: file.name }, file.name),
      element("span", { class: "file-state" }, state(file)),
      remove && iconButton("close", `Remove ${file.name}`, () => remove(file)),
    );
  return element("ul", { class: "files", "aria-label": "Files" }, ...files.map(item));
}

function draw() {
  const remove = (file) => {
    chosen = chosen.filter((other) => other !== file);
    draw();
  };
  byId("files").replaceChildren(...(chosen.length > 0 ? [fileList(chosen, remove)] : []));
}

function state({ tokens, problem }) {
  if (problem) return problem;
  return tokens === null || tokens === undefined ? "counting…" : `${tokens.toLocaleString("en")} tokens`;
}

async function readText(file) {
  if (file.size > LARGEST) throw new Error(`larger than ${LARGEST / 1_000_000} MB`);
  const bytes = await file.arrayBuffer();
  const text = isPdf(bytes) ? await pdfText(bytes) : decoded(bytes);
  if (text === null || text.includes("\0")) throw new Error("this is no text");
  if (text.trim() === "") throw new Error("it is empty");
  if (text.length > LONGEST) throw new Error(`more than ${LONGEST.toLocaleString("en")} characters`);
  return text.replaceAll("\r\n", "\n");
}

/** The text of bytes; null if they are no UTF-8. */
function decoded(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return null;
  }
}
