// The frame of the page: model selection, privacy line, theme, notices, the message field.

import { byId, element } from "./elements.js";

const THEMES = { system: "System", light: "Light", dark: "Dark" };
const TALLEST_MESSAGE = 220;

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

/** Shows how much of the context is used. */
export function showContextUse(conversation) {
  const used = conversation.messages.findLast(({ usage }) => usage)?.usage.total_tokens;
  const context = contexts.get(byId("model").value);
  const text = used && context ? `${used.toLocaleString("en")} of ${context.toLocaleString("en")} tokens` : "";
  byId("context-use").textContent = text;
}

/** Shows where conversations are processed. */
export function showPlace() {
  const { hostname, origin, pathname } = location;
  const local = hostname === "localhost" || hostname === "[::1]" || hostname.startsWith("127.");
  if (!local) byId("privacy-place").textContent = hostname;
  byId("api-address").textContent = `${origin}${pathname.replace(/\/$/, "")}/v1`;
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
