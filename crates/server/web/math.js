// Formulas, drawn by KaTeX, which is loaded when a text has the first one.

import { element } from "./elements.js";

/** Longer ones are shown as they were written. */
const LONGEST = 5000;
/** No links, pictures or classes of its own, and limits for what expands into itself. */
const OPTIONS = { throwOnError: true, strict: "ignore", trust: false, maxSize: 40, maxExpand: 500 };

let katex = null;
let loading = null;

/** A formula; one in display style stands on lines of its own. Until it can be drawn, it is shown as it was written. */
export function formula(source, display) {
  const node = element("span", { class: display ? "math display" : "math" }, source);
  if (source.length > LONGEST) return node;
  if (katex) draw(source, node, display);
  else load().then(() => katex && draw(source, node, display));
  return node;
}

function draw(source, node, displayMode) {
  try {
    katex.render(source, node, { ...OPTIONS, displayMode });
  } catch {
    node.replaceChildren(source);
    node.classList.add("unreadable");
  }
}

/** Where it cannot be loaded, formulas stay as they were written. */
function load() {
  loading ??= import("./katex/katex.min.js").then(
    () => {
      document.head.append(element("link", { rel: "stylesheet", href: "page/katex/katex.min.css" }));
      katex = globalThis.katex;
    },
    () => {},
  );
  return loading;
}
