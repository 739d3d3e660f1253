// Makes elements. Text goes in as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

/** The element of the page with this id. */
export const byId = (id) => document.getElementById(id);

/** An element; functions among its properties listen to the event of that name. */
export function element(name, properties = {}, ...children) {
  return filled(document.createElement(name), properties, children);
}

/** An element of a drawing. */
export function drawing(name, properties = {}, ...children) {
  return filled(document.createElementNS(SVG, name), properties, children);
}

/** One of the icons of the page. */
export function icon(name) {
  return drawing("svg", { class: "icon", "aria-hidden": "true" }, drawing("use", { href: `#icon-${name}` }));
}

/** A button that is only an icon; the label is for those who do not see it, and for the pointer at rest. */
export function iconButton(name, label, click, properties = {}) {
  const all = { type: "button", class: "icon-button", "aria-label": label, title: label, click, ...properties };
  return element("button", all, icon(name));
}

/** A button that copies what `text` gives, and says so. */
export function copyButton(label, text) {
  const button = iconButton("copy", label, async () => {
    const done = await copied(text());
    button.replaceChildren(icon(done ? "check" : "close"));
    announce(done ? "Copied" : "Could not copy");
    setTimeout(() => button.replaceChildren(icon("copy")), 1500);
  });
  return button;
}

/** Tells those who listen to the page. */
export function announce(text) {
  byId("announcer").append(element("p", {}, text));
  while (byId("announcer").childElementCount > 20) byId("announcer").firstChild.remove();
}

/** Hands the browser a file to save. */
export function download(name, value) {
  const address = URL.createObjectURL(new Blob([JSON.stringify(value, null, 2)], { type: "application/json" }));
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

async function copied(text) {
  // Pages that came over plain HTTP from another machine have no clipboard; the older way still works there.
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
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}
