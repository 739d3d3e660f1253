// The list of conversations, with their actions: rename, export, delete.

import { ask } from "./dialogs.js";
import { announce, byId, download, element, iconButton } from "./elements.js";
import { running } from "./run.js";
import * as store from "./store.js";

const DAY_MS = 86_400_000;

/** Draws the list; `actions` holds `renamed` and `removed`, called with a conversation. */
export function drawSidebar(current, actions) {
  const wanted = byId("search").value.trim();
  const groups = wanted === "" ? byAge() : [["Found", store.search(wanted)]];
  const nodes = groups.map(([name, found]) =>
    element(
      "section",
      {},
      element("h2", {}, found.length === 0 ? "Nothing found" : name),
      element("ul", {}, ...found.map((entry) => drawEntry(entry, current, actions))),
    ),
  );
  byId("conversations").replaceChildren(...nodes);
}

function byAge() {
  const kept = store.all();
  const open = running().filter((conversation) => !kept.some(({ id }) => id === conversation.id));
  const entries = [...open, ...kept].map((conversation) => ({ conversation, around: "" }));
  return Object.entries(Object.groupBy(entries, ({ conversation }) => age(conversation.updated)));
}

/** Saves all conversations as one file. */
export function exportAll() {
  download("cascadia-conversations.json", store.all());
}

/** Takes in exported conversations; returns what went wrong, if anything did. */
export async function importFiles(files) {
  const problems = [];
  for (const file of files) {
    try {
      const count = store.importFrom(await file.text());
      if (count === 0) problems.push(`${file.name} has no conversations.`);
      else announce(`${count} conversations imported`);
    } catch (error) {
      const full = error instanceof store.StorageFull;
      problems.push(full ? "The browser’s storage is full." : `${file.name} is no file that this page exported.`);
    }
  }
  return problems.join(" ") || null;
}

function drawEntry({ conversation, around }, current, actions) {
  const { id, title } = conversation;
  const link = element(
    "a",
    { href: `#chat/${id}`, "aria-current": id === current.id ? "page" : null },
    title || "Untitled",
    around && element("small", {}, around),
  );
  const more = iconButton("more", `Actions for ${title}`, () => openMenu(more, conversation, actions), {
    "aria-haspopup": "menu",
  });
  return element("li", { class: id === current.id ? "current" : null }, link, more);
}

function openMenu(button, conversation, actions) {
  const menu = byId("menu");
  const choice = (text, chosen) =>
    element(
      "button",
      {
        type: "button",
        role: "menuitem",
        click: () => {
          menu.hidePopover();
          chosen();
        },
      },
      text,
    );
  menu.setAttribute("role", "menu");
  menu.replaceChildren(
    choice("Rename", () => rename(conversation, actions)),
    choice("Export as JSON", () => download(`${fileName(conversation)}.json`, conversation)),
    choice("Delete", () => remove(conversation, actions)),
  );
  menu.showPopover();
  const { left, bottom } = button.getBoundingClientRect();
  menu.style.left = `${Math.min(left, innerWidth - menu.offsetWidth - 8)}px`;
  menu.style.top = `${Math.min(bottom + 4, innerHeight - menu.offsetHeight - 8)}px`;
  menu.onkeydown = (event) => moveFocus(event, menu);
  menu.firstChild.focus();
}

function moveFocus(event, menu) {
  const steps = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" };
  if (!steps[event.key]) return;
  event.preventDefault();
  const around = event.key === "ArrowDown" ? menu.firstChild : menu.lastChild;
  (document.activeElement[steps[event.key]] ?? around).focus();
}

async function rename(conversation, actions) {
  const title = await ask({ title: "Rename", text: "", accept: "Rename", value: conversation.title });
  if (title) actions.renamed(conversation, title);
}

async function remove(conversation, actions) {
  const text = `“${conversation.title}” is not stored anywhere else.`;
  if (await ask({ title: "Delete this conversation?", text, accept: "Delete" })) actions.removed(conversation);
}

function fileName({ title }) {
  return (
    title
      .toLowerCase()
      .replace(/[^\p{L}\p{N}]+/gu, "-")
      .replace(/^-|-$/g, "")
      .slice(0, 40) || "conversation"
  );
}

function age(updated) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  const names = [
    [midnight, "Today"],
    [midnight - DAY_MS, "Yesterday"],
    [midnight - 7 * DAY_MS, "This week"],
  ];
  return names.find(([from]) => updated >= from)?.[1] ?? "Earlier";
}
