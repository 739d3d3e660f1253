// Puts the page together: which conversation is shown, what keys and buttons do, which view is open.

import { models, onKeyNeeded, status } from "./api.js";
import { choose, fork } from "./branches.js";
import { Dashboard } from "./dashboard.js";
import { askForKey, open } from "./dialogs.js";
import { byId, element } from "./elements.js";
import { addFiles, hasFiles, setFiles, takeFiles } from "./files.js";
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
import { drawSidebar, exportAll, importFiles } from "./sidebar.js";
import * as store from "./store.js";
import { Transcript } from "./transcript.js";

const message = byId("message");
const dashboard = new Dashboard(byId("dashboard"));
const transcript = new Transcript({ retry, edit: startEditing, choose: chooseVersion, example: (text) => send(text) });
const onPhone = matchMedia("(pointer: coarse)").matches;
const sidebarActions = { renamed, removed };

/** How often a fleet is asked which of its machines compute. */
const PLACE_MS = 3000;

let current = store.fresh();
let placeTimer;
/** The message that is being edited. */
let editing = null;

/** Shortcuts with Alt, by the code of their key: letters differ between keyboards. */
const SHORTCUTS = {
  KeyN: newChat,
  KeyS: openSettings,
  KeyR: () => retry(),
  KeyB: toggleDashboard,
  KeyT: switchTheme,
  KeyF: () => byId("search").focus(),
};

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
  ["Alt + F", "Search conversations"],
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
  if ((text.trim() === "" && !hasFiles()) || isRunning(current)) return;
  const edited = editing;
  const versions = edited ? fork(current.messages, current.messages.indexOf(edited)) : undefined;
  const files = takeFiles();
  cancelEditing();
  const role = edited?.role ?? "user";
  current.messages.push({ role, content: text, files, edited: role === "assistant" || undefined, versions });
  current.title ||= store.titleFrom(text || files[0].name);
  message.value = "";
  fitMessage();
  if (role === "user") run();
  else changed();
}

/** Answers again, as another version: in the place of an answer, or after what the user said. */
function retry(said = current.messages[lastOfUser()]) {
  if (isRunning(current) || !said) return;
  const at = current.messages.indexOf(said) + (said.role === "user" ? 1 : 0);
  run(fork(current.messages, at));
}

function chooseVersion(said, version) {
  if (isRunning(current)) return;
  choose(current.messages, current.messages.indexOf(said), version);
  changed();
}

/** Keeps and shows a conversation whose messages are others now. */
function changed() {
  current.updated = Date.now();
  keep(current);
  transcript.show(current, false);
  refresh();
}

async function run(versions) {
  const conversation = current;
  conversation.updated = Date.now();
  keep(conversation);
  location.hash = `#chat/${conversation.id}`;
  followPlace();
  let begun = false;
  await answer(conversation, versions, (grown) => {
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

function startEditing(said = current.messages[lastOfUser()]) {
  if (isRunning(current) || !said) return;
  editing = said;
  byId("editing").hidden = false;
  byId("editing-what").textContent = said.role === "user" ? "Editing your message" : "Editing the answer";
  message.value = said.content;
  setFiles(said.files ?? []);
  fitMessage();
  message.focus();
}

function cancelEditing() {
  if (editing) {
    message.value = "";
    setFiles([]);
  }
  editing = null;
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

/** Files come from the button, by dropping them on the conversation, or with what is pasted. */
function listenForFiles() {
  const add = (list) => addFiles(list, current.model);
  const chooser = byId("file-chooser");
  byId("attach").addEventListener("click", () => chooser.click());
  chooser.addEventListener("change", () => {
    add([...chooser.files]);
    chooser.value = "";
  });
  const carriesFiles = ({ dataTransfer }) => dataTransfer?.types.includes("Files");
  byId("chat").addEventListener("dragover", (event) => carriesFiles(event) && event.preventDefault());
  byId("chat").addEventListener("drop", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    add([...event.dataTransfer.files]);
  });
  message.addEventListener("paste", ({ clipboardData }) => add([...clipboardData.files]));
  const importer = byId("import-chooser");
  byId("import").addEventListener("click", () => importer.click());
  importer.addEventListener("change", async () => {
    notice("import", await importFiles([...importer.files]));
    importer.value = "";
    refresh();
  });
}

function listen() {
  listenForFiles();
  const clicks = {
    "new-chat": newChat,
    "open-settings": openSettings,
    "switch-theme": switchTheme,
    stop: () => stop(current),
    "cancel-edit": cancelEditing,
    scrim: closeSidebar,
    "open-help": () => open(byId("help")),
    "export-all": exportAll,
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
  byId("search").addEventListener("input", () => drawSidebar(current, sidebarActions));
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
