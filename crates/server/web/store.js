// Conversations in the browser's storage: one entry each, so that two tabs do not overwrite each other.

import { areVersions } from "./branches.js";
import { DEFAULTS } from "./settings.js";

const PREFIX = "cascadia.conversation.";
const LAST_SETTINGS = "cascadia.settings";
/** Browsers give a page about five million characters; the rest is left for titles and settings. */
const LIMIT = 4_500_000;

/** The storage is full, or there is none. */
export class StorageFull extends Error {}

/** A new conversation; it is stored once it has messages. */
export function fresh() {
  return {
    id: crypto.getRandomValues(new Uint32Array(3)).join("-"),
    title: "",
    created: Date.now(),
    updated: Date.now(),
    model: null,
    settings: { ...DEFAULTS, ...read(LAST_SETTINGS) },
    messages: [],
  };
}

/** All conversations, the latest first. */
export function all() {
  const found = keys()
    .map((key) => valid(read(key)))
    .filter((conversation) => conversation !== null);
  return found.sort((one, other) => other.updated - one.updated);
}

/** Conversations in which a text occurs, each with the words around it, or with nothing if it is in the title. */
export function search(text) {
  const wanted = text.toLowerCase();
  return all().flatMap((conversation) => {
    if (conversation.title.toLowerCase().includes(wanted)) return [{ conversation, around: "" }];
    const said = conversation.messages.find(({ content }) => content.toLowerCase().includes(wanted))?.content;
    if (said === undefined) return [];
    const at = said.toLowerCase().indexOf(wanted);
    return [{ conversation, around: `${at > 20 ? "…" : ""}${said.slice(Math.max(0, at - 20), at + 60)}` }];
  });
}

/** Stores the conversations of an exported file; says how many those are. Those that are here already get new ids. */
export function importFrom(text) {
  const stored = JSON.parse(text);
  const found = (Array.isArray(stored) ? stored : [stored]).map(valid).filter((conversation) => conversation !== null);
  for (const conversation of found) {
    const here = find(conversation.id);
    if (here && JSON.stringify(here) === JSON.stringify(conversation)) continue;
    save(here ? { ...conversation, id: fresh().id } : conversation);
  }
  return found.length;
}

/** A conversation, or null. */
export function find(id) {
  return valid(read(PREFIX + id));
}

/** Stores a conversation. */
export function save(conversation) {
  const key = PREFIX + conversation.id;
  const text = JSON.stringify(conversation);
  const others = keys().filter((other) => other !== key);
  const used = others.reduce((sum, other) => sum + localStorage.getItem(other).length, 0);
  if (used + text.length > LIMIT) throw new StorageFull();
  write(key, text);
}

/** Deletes a conversation. */
export function remove(id) {
  localStorage.removeItem(PREFIX + id);
}

/** Initial settings of the next new conversation. */
export function rememberSettings(settings) {
  const { system, ...sampling } = settings;
  write(LAST_SETTINGS, JSON.stringify(sampling));
}

/** Calls back when another tab has changed something. */
export function onChange(changed) {
  addEventListener("storage", (event) => {
    if (event.key === null || event.key.startsWith(PREFIX)) changed();
  });
}

/** A title made from the first words of a conversation. */
export function titleFrom(text) {
  const line = text.trim().split("\n")[0].replace(/\s+/g, " ");
  return line.length > 60 ? `${line.slice(0, 57).trimEnd()}…` : line;
}

function keys() {
  return Object.keys(localStorage).filter((key) => key.startsWith(PREFIX));
}

function read(key) {
  try {
    return JSON.parse(localStorage.getItem(key));
  } catch {
    return null;
  }
}

function write(key, text) {
  try {
    localStorage.setItem(key, text);
  } catch {
    throw new StorageFull();
  }
}

/** Stored data may come from another version or have been edited: it is used only if it has the right shape. */
function valid(conversation) {
  const isFile = (file) => typeof file?.name === "string" && typeof file.text === "string";
  const isMessage = (message) =>
    typeof message?.role === "string" &&
    typeof message.content === "string" &&
    (message.files === undefined || (Array.isArray(message.files) && message.files.every(isFile))) &&
    areVersions(message.versions, isMessage);
  const fits =
    typeof conversation?.id === "string" &&
    typeof conversation.title === "string" &&
    Array.isArray(conversation.messages) &&
    conversation.messages.every(isMessage);
  return fits ? { ...conversation, settings: { ...DEFAULTS, ...conversation.settings } } : null;
}
