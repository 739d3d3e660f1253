// The settings of a conversation as data, with their limits, and the fields to edit them.

import { element } from "./elements.js";

/** The settings; an empty value uses the server's default. */
const FIELDS = [
  {
    name: "temperature",
    label: "Temperature",
    min: 0,
    max: 2,
    step: 0.05,
    slider: true,
    hint: "0 always picks the most likely token; higher values are more random.",
  },
  {
    name: "top_p",
    label: "Top-p",
    min: 0,
    max: 1,
    step: 0.01,
    slider: true,
    hint: "Samples from the most likely tokens with this total probability.",
  },
  {
    name: "min_p",
    label: "Min-p",
    min: 0,
    max: 1,
    step: 0.01,
    slider: true,
    hint: "Drops tokens less likely than this fraction of the best.",
  },
  { name: "top_k", label: "Top-k", min: 0, max: 1000, step: 1, hint: "Samples from the K most likely tokens; 0 is off." },
  {
    name: "max_tokens",
    label: "Maximum tokens",
    min: 1,
    max: 1048576,
    step: 1,
    placeholder: "what fits",
    hint: "Length limit of an answer. A token is about three quarters of a word.",
  },
  {
    name: "seed",
    label: "Seed",
    min: 0,
    max: 4294967295,
    step: 1,
    placeholder: "random",
    hint: "The same seed gives the same answer.",
  },
];

/** The initial settings of a model whose authors suggest nothing. */
export const DEFAULTS = {
  system: "",
  temperature: 0.8,
  top_p: 1,
  min_p: 0.05,
  top_k: 0,
  max_tokens: null,
  seed: null,
};

/** Makes what the model's authors suggest the initial settings. */
export function suggest(sampling) {
  const known = Object.entries(sampling ?? {}).filter(([name, value]) => name in DEFAULTS && Number.isFinite(value));
  Object.assign(DEFAULTS, Object.fromEntries(known));
}

/** The request fields that come from the settings. */
export function requestFields(settings) {
  const given = FIELDS.map(({ name }) => [name, settings[name]]).filter(([, value]) => Number.isFinite(value));
  return Object.fromEntries(given);
}

/** Fills a panel with fields for `settings`; `changed` is called after every change. */
export function drawSettings(panel, settings, changed) {
  const system = element("textarea", {
    id: "system-prompt",
    class: "field",
    rows: "5",
    placeholder: "Who the model should be, and how it should answer",
  });
  system.value = settings.system;
  system.addEventListener("input", () => {
    settings.system = system.value;
    changed();
  });
  const reset = element(
    "button",
    {
      type: "button",
      class: "plain-button",
      click: () => {
        Object.assign(settings, { ...DEFAULTS, system: settings.system });
        changed();
        drawSettings(panel, settings, changed);
      },
    },
    "Reset sampling",
  );
  panel.replaceChildren(
    element("div", { class: "setting" }, element("label", { for: "system-prompt" }, "System prompt"), system),
    ...FIELDS.map((field) => drawField(field, settings, changed)),
    reset,
    element("p", { class: "quiet" }, "For this conversation. New ones start with the same sampling settings."),
  );
}

function drawField(field, settings, changed) {
  const { name, label, hint, slider, placeholder, min, max, step } = field;
  const limits = { min, max, step };
  const id = `setting-${name}`;
  const number = element("input", {
    ...limits,
    id,
    class: "field number",
    type: "number",
    placeholder,
    "aria-describedby": `${id}-hint`,
  });
  const range = slider ? element("input", { ...limits, class: "range", type: "range", "aria-label": label }) : null;
  const inputs = range ? [number, range] : [number];
  const show = (but) =>
    inputs.filter((input) => input !== but).forEach((input) => (input.value = settings[name] ?? ""));
  for (const input of inputs) {
    input.addEventListener("input", () => {
      const value = Number(input.value);
      const fits = input.value !== "" && value >= min && value <= max && (step < 1 || Number.isInteger(value));
      number.setCustomValidity(fits || input.value === "" ? "" : `From ${min} to ${max}`);
      settings[name] = fits ? value : null;
      show(input);
      changed();
    });
  }
  show(null);
  return element(
    "div",
    { class: "setting" },
    element("div", { class: "setting-head" }, element("label", { for: id }, label), number),
    range,
    element("p", { id: `${id}-hint`, class: "quiet" }, hint),
  );
}
