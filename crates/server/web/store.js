// Conversations in the browser's storage: one entry each, so that two tabs do not overwrite each other.

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
  const isMessage = (message) => typeof message?.role === "string" && typeof message.content === "string";
  const fits =
    typeof conversation?.id === "string" &&
    Array.isArray(conversation.messages) &&
    conversation.messages.every(isMessage);
  return fits ? { ...conversation, settings: { ...DEFAULTS, ...conversation.settings } } : null;
}
