// The fleet on the dashboard: which machine runs which layers, and where the time of a step goes.

import { duration } from "./charts.js";
import { drawing, element } from "./elements.js";

/** Number of samples over which times are averaged, one per second. */
const LOOKS = 10;
const ROLES = {
  computes: "runs stage",
  computes_along: "is a lockstep standby for stage",
  spare: "is a standby for stage",
  slow: "is more than four times slower than before on stage",
  doubted: "computed other results than another machine on stage",
  wrong: "was excluded for wrong results on stage",
  gone: "disconnected from stage",
  quarantined: "is quarantined: it was lost too often",
};
const HEADS = ["Stage", "Layers", "Worker", "Standbys", "Lost", "Step", "Expected", "Where the time goes"];
/** Time of a step outside the stages. */
const REST = "Other";

/** The card; hidden if the server has no fleet. */
export class FleetCard {
  constructor() {
    const part = (name, tag, properties, ...children) => (this[name] = element(tag, properties, ...children));
    const legend = [
      ["computing", "compute"],
      ["network", "network"],
      ["rest", "embedding, output matrix, sampling, waiting for a stage"],
    ].map(([name, text]) => element("li", { class: name }, text));
    this.node = element(
      "section",
      { class: "card full fleet", "aria-label": "Fleet", hidden: true },
      element("h2", {}, "Fleet"),
      part("map", "div", { class: "layer-map", role: "img" }),
      part("table", "div", { class: "table", role: "region", "aria-label": "Time of a step", tabindex: 0 }),
      element("ul", { class: "legend" }, ...legend, part("planned", "li", { class: "expected" }, "expected for one token")),
      part("away", "p", { class: "quiet" }),
      part("events", "ol", { class: "events", tabindex: 0, "aria-label": "Latest events, newest first" }),
    );
    this.clear();
  }

  clear() {
    this.looks = [];
    this.means = [];
  }

  /** Draws the fleet; returns whether the server has one. */
  draw({ fleet, service }) {
    this.node.hidden = !fleet;
    if (!fleet) return false;
    this.look(fleet, service);
    this.drawMap(fleet.stages);
    this.drawTimes(fleet);
    const at = (name) => ({ node, spares }) => node === name || spares.includes(name);
    const away = fleet.machines.filter((name) => !fleet.stages.some(at(name)));
    const [heldBack, gone] = [true, false].map((held) => away.filter((name) => name in fleet.quarantined === held));
    const lists = { "Not connected": gone, Quarantined: heldBack };
    const filled = Object.entries(lists).filter(([, names]) => names.length > 0);
    this.away.textContent = filled.map(([title, names]) => `${title}: ${names.join(", ")}`).join(". ");
    this.drawEvents(fleet.events);
    return true;
  }

  /** Averages times over the last samples; a stage that has not run keeps its average. */
  look(fleet, service) {
    const now = {
      model: fleet.model,
      counters: [
        ...fleet.stages.map(({ steps, microseconds, computing_microseconds: computing }) => [
          steps,
          microseconds / 1e6,
          computing / 1e6,
        ]),
        [service.steps_total, service.step_seconds_total, 0],
      ],
    };
    // Counters restart with another model or another server process.
    const before = this.looks.at(-1);
    const again = ([steps], index) => steps < before.counters[index][0];
    if (before && (before.model !== now.model || now.counters.some(again))) this.clear();
    this.looks = [...this.looks, now].slice(-LOOKS);
    this.means = now.counters.map((counter, index) => {
      const first = this.looks.length > 1 ? this.looks[0].counters[index] : [0, 0, 0];
      const [steps, all, computing] = counter.map((value, place) => value - first[place]);
      return steps > 0 ? { all: all / steps, computing: computing / steps } : this.means[index];
    });
  }

  /** A bar for all layers, with the stages in proportion. */
  drawMap(stages) {
    const parts = stages.map(({ layers, node, spares }) => {
      // Before the first step, and after a loss, a stage has standbys only.
      const name = node ?? spares[0];
      const part = element(
        "div",
        { class: name ? "part" : "part lost", title: `${name ?? "no worker"}, layers ${range(layers)}` },
        element("b", {}, name ?? "no worker"),
        element("small", {}, range(layers)),
      );
      part.style.flexGrow = layers[1] - layers[0];
      return part;
    });
    const texts = stages.map(
      ({ layers, node, spares }) => `layers ${range(layers)} on ${node ?? spares[0] ?? "no worker"}`,
    );
    this.map.setAttribute("aria-label", texts.join(", "));
    this.map.replaceChildren(...parts);
  }

  /** One row per stage, and one for the rest of a step. */
  drawTimes({ stages, plan }) {
    const rows = stages.map(({ layers, node, spares, shadow, lost }, index) => {
      const { all, computing } = this.means[index] ?? {};
      const planned = plan?.stages[index];
      const role = (name) => (name === shadow ? `${name} (lockstep)` : name);
      return {
        texts: [String(index), range(layers), node ?? "–", spares.map(role).join(", ") || "–", String(lost)],
        times: { computing, network: all === undefined ? undefined : Math.max(0, all - computing) },
        expected: planned ? planned.seconds + planned.network_seconds : undefined,
      };
    });
    const step = this.means.at(-1)?.all;
    const inStages = this.means.slice(0, -1).reduce((sum, mean) => sum + (mean?.all ?? 0), 0);
    rows.push({
      texts: [REST, "", "", "", ""],
      times: { rest: step === undefined ? undefined : Math.max(0, step - inStages) },
      expected: plan?.ends_seconds,
    });
    const longest = Math.max(...rows.flatMap((row) => [total(row.times), row.expected ?? 0]));
    this.planned.hidden = !plan;
    this.table.replaceChildren(
      element(
        "table",
        { class: "stages" },
        element("thead", {}, element("tr", {}, ...HEADS.map((text) => element("th", { scope: "col" }, text)))),
        element("tbody", {}, ...rows.map((row) => timeRow(row, longest))),
      ),
    );
  }

  drawEvents(events) {
    const lines = events.toReversed().map(({ time, node, stage, role }) => {
      const at = new Date(1000 * time);
      const clock = element("time", { datetime: at.toISOString() }, at.toLocaleTimeString("en-GB"));
      return element("li", {}, clock, ` ${node} ${ROLES[role] ?? role} ${stage ?? ""}`);
    });
    this.events.replaceChildren(...lines);
  }
}

function timeRow({ texts: [name, ...texts], times, expected }, longest) {
  const known = Object.values(times).every((value) => value !== undefined);
  return element(
    "tr",
    {},
    element("th", { scope: "row" }, name),
    // On a phone a row is a list, in which every cell says what it is.
    ...[...texts, duration(known ? total(times) : null), duration(expected)].map((text, column) =>
      element("td", { "data-head": HEADS[column + 1] }, text),
    ),
    element("td", { class: "time-cell", "data-head": HEADS.at(-1) }, known ? timeBar({ times, expected, longest }) : null),
  );
}

/** The parts of a time side by side, and a mark at the expected total. */
function timeBar({ times, expected, longest }) {
  const place = (seconds) => `${longest > 0 ? (100 * seconds) / longest : 0}%`;
  let before = 0;
  const parts = Object.entries(times).map(([name, seconds]) => {
    const part = drawing("rect", { class: name, x: place(before), y: 4, width: place(seconds), height: 12 });
    before += seconds;
    return part;
  });
  if (expected !== undefined) {
    parts.push(drawing("line", { class: "expected", x1: place(expected), x2: place(expected), y1: 0, y2: 20 }));
  }
  const label = Object.entries(times).map(([name, seconds]) => `${duration(seconds)} ${name}`);
  return drawing("svg", { class: "time-bar", height: 20, role: "img", "aria-label": label.join(", ") }, ...parts);
}

function total(times) {
  return Object.values(times).reduce((sum, seconds) => sum + (seconds ?? 0), 0);
}

/** A layer range for people: first and last, inclusive. */
function range([first, end]) {
  return end - first > 1 ? `${first}–${end - 1}` : String(first);
}
