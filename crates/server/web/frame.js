// The frame of the page: model selection, privacy line, theme, notices, the message field.

import { byId, element } from "./elements.js";

const THEMES = { system: "System", light: "Light", dark: "Dark" };
const TALLEST_MESSAGE = 220;
/** The most machines whose names fit beside the model. */
const NAMED_MACHINES = 3;

let contexts = new Map();

/** Fills the model selection. A model with a parent is an adapter of it. */
export function fillModels(models) {
  contexts = new Map(models.map((model) => [model.id, model.context_length]));
  const option = ({ id }) => element("option", { value: id }, id);
  const bases = models.filter((model) => !model.parent);
  const adapters = Object.entries(
    Object.groupBy(
      models.filter((model) => model.parent),
      (model) => model.parent,
    ),
  );
  const groups = adapters.map(([parent, list]) =>
    element("optgroup", { label: `Adapters of ${parent}` }, ...list.map(option)),
  );
  const select = byId("model");
  select.replaceChildren(...bases.map(option), ...groups);
  select.disabled = models.length < 2;
}

/** Selects the model of a conversation, or the first one if it is no longer served. */
export function showModel(conversation) {
  if (contexts.size > 0 && !contexts.has(conversation.model)) conversation.model = null;
  byId("model").value = conversation.model ?? byId("model").options[0].value;
}

/** The most tokens of a conversation with the selected model, if that is known. */
export const contextLength = () => contexts.get(byId("model").value);

/** Shows how much of the context is used. */
export function showContextUse(conversation) {
  const used = conversation.messages.findLast(({ usage }) => usage)?.usage.total_tokens;
  const context = contextLength();
  const text = used && context ? `${used.toLocaleString("en")} of ${context.toLocaleString("en")} tokens` : "";
  byId("context-use").textContent = text;
}

/** Shows where the API is. */
export function showAddress() {
  const { origin, pathname } = location;
  byId("api-address").textContent = `${origin}${pathname.replace(/\/$/, "")}/v1`;
}

/** Shows where conversations are processed, by the status of the server. Before it is known, nothing is promised. */
export function showPlace({ on_fleet: onFleet, fleet }) {
  const { hostname } = location;
  const local = hostname === "localhost" || hostname === "[::1]" || hostname.startsWith("127.");
  const here = local ? "this machine" : hostname;
  const parts = (first, rest) => [element("span", { class: "only-wide" }, `${first} `), rest];
  if (!onFleet) {
    byId("privacy-text").replaceChildren(...parts("Everything", `stays on ${here}`));
    byId("privacy").title = "";
    return;
  }
  // All that hold a stage may get hidden states with the next step, also those on standby.
  const holding = (fleet?.stages ?? []).flatMap(({ node, spares }) => [node, ...spares]);
  const others = [...new Set(holding)].filter((name) => name && name !== "here");
  const named = others.length > NAMED_MACHINES ? [`${others.length} other machines`] : others;
  const names = fleet ? [...named, here].join(", ") : "the machines of a fleet";
  byId("privacy-text").replaceChildren(...parts("Computed", `on ${names}`));
  const tokens = fleet?.sends_tokens ? "Token ids, which are the text itself, are sent to them too. " : "";
  byId("privacy").title =
    `Sent to: ${others.join(", ")}. ${tokens}Hidden states can be turned back into text by the machines that get them.`;
}

/** Switches to the next theme: system, light, dark. */
export function switchTheme() {
  const names = Object.keys(THEMES);
  const { dataset } = document.documentElement;
  dataset.theme = names[(names.indexOf(dataset.theme) + 1) % names.length];
  localStorage.setItem("cascadia.theme", dataset.theme);
  showTheme();
}

/** Shows which theme is chosen. */
export function showTheme() {
  const text = `Theme: ${(THEMES[document.documentElement.dataset.theme] ?? THEMES.system).toLowerCase()}`;
  byId("switch-theme").setAttribute("aria-label", text);
  byId("switch-theme").title = `${text} (Alt+T)`;
}

/** Shows or removes the notice of this name. */
export function notice(name, text, ...actions) {
  const id = `notice-${name}`;
  byId(id)?.remove();
  if (text) byId("notices").append(element("p", { id, class: "notice" }, element("span", {}, text), ...actions));
}

/** Makes the message field as tall as its text, up to a limit. */
export function fitMessage() {
  const message = byId("message");
  message.style.height = "auto";
  message.style.height = `${Math.min(message.scrollHeight, TALLEST_MESSAGE)}px`;
}
