// Makes elements. Text goes in as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

/** The element of the page with this id. */
export const byId = (id) => document.getElementById(id);

/** An element. Functions among its properties become event listeners. */
export function element(name, properties = {}, ...children) {
  return filled(document.createElement(name), properties, children);
}

/** An SVG element. */
export function drawing(name, properties = {}, ...children) {
  return filled(document.createElementNS(SVG, name), properties, children);
}

/** One of the icons of the page. */
export function icon(name) {
  return drawing("svg", { class: "icon", "aria-hidden": "true" }, drawing("use", { href: `#icon-${name}` }));
}

/** An icon button; the label is its accessible name and tooltip. */
export function iconButton(name, label, click, properties = {}) {
  const all = { type: "button", class: "icon-button", "aria-label": label, title: label, click, ...properties };
  return element("button", all, icon(name));
}

/** A button that copies the result of `text` and confirms it. */
export function copyButton(label, text) {
  const button = iconButton("copy", label, async () => {
    const done = await copied(text());
    button.replaceChildren(icon(done ? "check" : "close"));
    announce(done ? "Copied" : "Could not copy");
    setTimeout(() => button.replaceChildren(icon("copy")), 1500);
  });
  return button;
}

/** Announces a text to screen readers. */
export function announce(text) {
  byId("announcer").append(element("p", {}, text));
  while (byId("announcer").childElementCount > 20) byId("announcer").firstChild.remove();
}

/** Lets the browser save a file. */
export function download(name, value) {
  const address = URL.createObjectURL(new Blob([JSON.stringify(value, null, 2)], { type: "application/json" }));
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

async function copied(text) {
  // Pages over plain HTTP from another machine have no clipboard API; the older one still works there.
  if (navigator.clipboard) {
    return navigator.clipboard.writeText(text).then(
      () => true,
      () => false,
    );
  }
  const field = element("textarea", { class: "hidden-label" });
  field.value = text;
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  return done;
}

function filled(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value !== false && value !== null && value !== undefined)
      node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}
