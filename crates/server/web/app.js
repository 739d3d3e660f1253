// Puts the page together: which conversation is shown, what keys and buttons do, which view is open.

import { models, onKeyNeeded, status } from "./api.js";
import { Dashboard } from "./dashboard.js";
import { askForKey, open } from "./dialogs.js";
import { byId, element } from "./elements.js";
import {
  fillModels,
  fitMessage,
  notice,
  showAddress,
  showContextUse,
  showModel,
  showPlace,
  showTheme,
  switchTheme,
} from "./frame.js";
import { answer, isRunning, running, runningConversation, stop } from "./run.js";
import { drawSettings, suggest } from "./settings.js";
import { drawSidebar, exportAll } from "./sidebar.js";
import * as store from "./store.js";
import { Transcript } from "./transcript.js";

const message = byId("message");
const dashboard = new Dashboard(byId("dashboard"));
const transcript = new Transcript({ retry, edit: startEditing, example: (text) => send(text) });
const onPhone = matchMedia("(pointer: coarse)").matches;
const sidebarActions = { renamed, removed };

/** How often a fleet is asked which of its machines compute. */
const PLACE_MS = 3000;

let current = store.fresh();
let placeTimer;
let editing = false;

/** Shortcuts with Alt, by the code of their key: letters differ between keyboards. */
const SHORTCUTS = { KeyN: newChat, KeyS: openSettings, KeyR: retry, KeyB: toggleDashboard, KeyT: switchTheme };

const KEYS = [
  ["Enter", "Send"],
  ["Shift + Enter", "New line"],
  ["Esc", "Stop the answer, or cancel editing"],
  ["↑ in an empty message", "Edit your last message"],
  ["Alt + R", "Regenerate the answer"],
  ["Alt + N", "New chat"],
  ["Alt + S", "Settings"],
  ["Alt + B", "Dashboard"],
  ["Alt + T", "Theme: light, dark or system"],
  ["/", "Focus the message field"],
  ["?", "Show this list"],
];

function show(conversation) {
  current = conversation;
  cancelEditing();
  transcript.show(current, isRunning(current));
  refresh();
}

/** Draws everything that depends on the conversation. */
function refresh() {
  drawSidebar(current, sidebarActions);
  const busy = isRunning(current);
  byId("send").hidden = busy;
  byId("stop").hidden = !busy;
  showModel(current);
  showContextUse(current);
  document.title = current.title ? `${current.title} – cascadia` : "cascadia";
}

function keep(conversation) {
  try {
    store.save(conversation);
    notice("storage", null);
  } catch (error) {
    if (!(error instanceof store.StorageFull)) throw error;
    const exportButton = element("button", { type: "button", class: "text-button", click: exportAll }, "Export all");
    notice(
      "storage",
      "The browser’s storage is full: this conversation is not saved. Delete some that you no longer need.",
      exportButton,
    );
  }
}

function send(text) {
  if (text.trim() === "" || isRunning(current)) return;
  if (editing) current.messages.splice(lastOfUser(), Infinity);
  cancelEditing();
  current.messages.push({ role: "user", content: text });
  current.title ||= store.titleFrom(text);
  message.value = "";
  fitMessage();
  run();
}

function retry() {
  if (isRunning(current) || lastOfUser() < 0) return;
  current.messages.splice(lastOfUser() + 1, Infinity);
  run();
}

async function run() {
  const conversation = current;
  conversation.updated = Date.now();
  keep(conversation);
  location.hash = `#chat/${conversation.id}`;
  followPlace();
  let begun = false;
  await answer(conversation, (grown) => {
    const shown = conversation === current;
    if (!begun && shown) {
      transcript.show(current, true);
      refresh();
    } else if (shown) {
      transcript.grew(grown);
    }
    begun = true;
  });
  if (store.find(conversation.id) || conversation === current) keep(conversation);
  if (conversation === current) transcript.ended(conversation.messages.at(-1));
  refresh();
}

function lastOfUser() {
  return current.messages.findLastIndex(({ role }) => role === "user");
}

function startEditing() {
  if (isRunning(current) || lastOfUser() < 0) return;
  editing = true;
  byId("editing").hidden = false;
  message.value = current.messages[lastOfUser()].content;
  fitMessage();
  message.focus();
}

function cancelEditing() {
  if (editing) message.value = "";
  editing = false;
  byId("editing").hidden = true;
  fitMessage();
}

function newChat() {
  closeSidebar();
  history.pushState(null, "", "#chat");
  route();
  message.focus();
}

function renamed(conversation, title) {
  const target = conversation.id === current.id ? current : conversation;
  target.title = title;
  keep(target);
  refresh();
}

function removed(conversation) {
  stop(conversation);
  store.remove(conversation.id);
  notice("storage", null);
  if (conversation.id === current.id) newChat();
  else refresh();
}

function openSettings() {
  drawSettings(byId("settings-fields"), current.settings, () => {
    try {
      store.rememberSettings(current.settings);
    } catch {
      // The settings still apply to this conversation.
    }
  });
  open(byId("settings"));
}

function toggleDashboard() {
  location.hash = byId("dashboard").hidden ? "#dashboard" : `#chat/${current.id}`;
}

/** Shows the view in the address. */
function route() {
  const [view, id] = location.hash.slice(1).split("/");
  const onDashboard = view === "dashboard";
  byId("chat").hidden = onDashboard;
  byId("dashboard").hidden = !onDashboard;
  document.body.classList.toggle("on-dashboard", onDashboard);
  if (onDashboard) dashboard.open();
  else dashboard.close();
  closeSidebar();
  if (onDashboard) {
    drawSidebar({ id: null }, sidebarActions);
    byId("dashboard").focus();
  } else if (id !== current.id || id === undefined) {
    show((id && (runningConversation(id) ?? store.find(id))) || store.fresh());
  } else {
    refresh();
  }
}

function closeSidebar() {
  document.body.classList.remove("sidebar-open");
  byId("open-sidebar").setAttribute("aria-expanded", "false");
}

function onKey(event) {
  if (document.querySelector("dialog[open], :popover-open")) return;
  const typing = event.target.matches("input, textarea, select");
  if (event.altKey && SHORTCUTS[event.code]) {
    event.preventDefault();
    SHORTCUTS[event.code]();
  } else if (event.key === "Escape") {
    if (editing) cancelEditing();
    else stop(current);
    closeSidebar();
  } else if (!typing && event.key === "?") {
    open(byId("help"));
  } else if (!typing && event.key === "/") {
    event.preventDefault();
    message.focus();
  }
}

function onMessageKey(event) {
  // Enter also ends the composition of a character, and is the only way to a new line on a phone.
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !onPhone) {
    event.preventDefault();
    send(message.value);
  } else if (event.key === "ArrowUp" && message.value === "") {
    event.preventDefault();
    startEditing();
  }
}

/** Shows where it is computed, and on a fleet every few seconds, because other machines may compute by then. */
async function followPlace() {
  clearTimeout(placeTimer);
  try {
    const now = await status();
    showPlace(now);
    if (!now.on_fleet) return;
  } catch {
    // A server that does not answer says so where an answer would be.
  }
  clearTimeout(placeTimer);
  placeTimer = setTimeout(followPlace, PLACE_MS);
}

async function connect() {
  try {
    const served = await models();
    fillModels(served);
    suggest(served[0].default_sampling);
    if (current.messages.length === 0) current.settings = { ...store.fresh().settings, system: current.settings.system };
    notice("server", null);
    refresh();
    followPlace();
  } catch (error) {
    const again = element("button", { type: "button", class: "text-button", click: connect }, "Try again");
    notice("server", error.message, again);
  }
}

function listen() {
  const clicks = {
    "new-chat": newChat,
    "open-settings": openSettings,
    "switch-theme": switchTheme,
    stop: () => stop(current),
    "cancel-edit": cancelEditing,
    scrim: closeSidebar,
    "open-help": () => open(byId("help")),
  };
  for (const [id, click] of Object.entries(clicks)) byId(id).addEventListener("click", click);
  byId("open-sidebar").addEventListener("click", () => {
    document.body.classList.add("sidebar-open");
    byId("open-sidebar").setAttribute("aria-expanded", "true");
    byId("new-chat").focus();
  });
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    send(message.value);
  });
  byId("model").addEventListener("change", () => (current.model = byId("model").value));
  byId("settings").addEventListener("close", () => current.messages.length > 0 && keep(current));
  message.addEventListener("keydown", onMessageKey);
  message.addEventListener("input", fitMessage);
  addEventListener("keydown", onKey);
  addEventListener("hashchange", route);
  addEventListener("popstate", route);
  // Save the part of an unfinished answer before the page is closed.
  addEventListener("pagehide", () => running().forEach(keep));
  store.onChange(() => drawSidebar(current, sidebarActions));
}

byId("shortcuts").append(
  ...KEYS.flatMap(([keys, does]) => [element("dt", {}, element("kbd", {}, keys)), element("dd", {}, does)]),
);
onKeyNeeded(askForKey);
showAddress();
showTheme();
listen();
route();
connect();
// On a phone, focus would open the keyboard and cover half of the page.
if (!onPhone) message.focus();
