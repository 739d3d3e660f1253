// The dashboard: polls the server's status every second while it is open, and draws it.

import { cache, recent, status } from "./api.js";
import { duration, poolMap, rangeRow, rangeScale, short, timeChart } from "./charts.js";
import { element } from "./elements.js";
import { FleetCard } from "./fleet.js";
import { showPlace } from "./frame.js";
import { History } from "./history.js";

const EVERY_MS = 1000;

/** The newest events of the KV cache that are shown. */
const MOST_EVENTS = 8;

const LATENCIES = [
  ["queue_seconds", "Queue"],
  ["time_to_first_token_seconds", "First token"],
  ["inter_token_seconds", "Between tokens"],
  ["end_to_end_seconds", "Total"],
];

/** The view and its timer. */
export class Dashboard {
  constructor(node) {
    this.node = node;
    this.history = new History();
    this.fleet = new FleetCard();
    this.controller = null;
    this.isNew = true;
    this.parts = {};
  }

  /** Starts polling. */
  open() {
    if (this.controller) return;
    if (this.node.childElementCount === 0) this.build();
    this.controller = new AbortController();
    this.isNew = true;
    this.ask(this.controller.signal);
  }

  /** Stops polling. */
  close() {
    this.controller?.abort();
    this.controller = null;
  }

  async ask(signal) {
    while (!signal.aborted) {
      // A hidden page does not poll.
      if (document.visibilityState === "visible") await this.sample(signal);
      await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
    }
  }

  async sample(signal) {
    try {
      const now = await status(signal);
      // What was while nobody looked.
      if (this.isNew) this.history.begin(await recent(signal), now);
      this.isNew = false;
      this.history.add(now);
      showPlace(now);
      this.parts.problem.hidden = true;
      this.draw(now);
      this.drawEvents(await cache(signal));
    } catch (error) {
      if (signal.aborted) return;
      this.parts.problem.textContent = error.message;
      this.parts.problem.hidden = false;
    }
  }

  /** Makes the cards, once. */
  build() {
    const part = (name, tag, properties = {}) => (this.parts[name] = element(tag, properties));
    const big = (name, unit) => element("p", { class: "big" }, part(name, "span"), element("small", {}, unit));
    const legend = (...entries) =>
      element(
        "ul",
        { class: "legend" },
        ...entries.map(([name, text, id]) => element("li", { class: name }, text, id ? part(id, "b") : null)),
      );
    this.node.replaceChildren(
      element(
        "header",
        { class: "dashboard-head" },
        element("h1", {}, "Dashboard"),
        part("about", "p", { class: "quiet" }),
      ),
      part("problem", "p", { class: "notice", role: "alert", hidden: true }),
      card(
        "Tokens per second",
        "wide",
        big("speed", "generated per second"),
        part("speedChart", "div", { class: "chart" }),
        legend(["generated", "generated "], ["prompt", "prompt "]),
      ),
      card(
        "Requests",
        "",
        big("running", "running"),
        part("queueChart", "div", { class: "chart" }),
        legend(["running", "running"], ["waiting", "waiting ", "waiting"]),
      ),
      card(
        "KV cache",
        "",
        big("pool", "in use"),
        part("poolMap", "div", { class: "pool" }),
        legend(
          ["held", "held ", "held"],
          ["cached", "cached ", "cached"],
          ["lent", "adapters ", "lent"],
          ["free", "free ", "free"],
        ),
        part("poolNote", "p", { class: "quiet" }),
      ),
      card("Latency", "wide", part("latencies", "div")),
      card(
        "Prefix cache",
        "",
        big("prefix", "of prompt tokens reused"),
        part("prefixBar", "div"),
        part("prefixFacts", "dl", { class: "facts" }),
      ),
      card(
        "Speculation",
        "",
        big("speculation", "of draft tokens accepted"),
        part("speculationBar", "div"),
        part("speculationFacts", "dl", { class: "facts" }),
      ),
      card("Answers", "", big("finished", "finished"), part("answerFacts", "dl", { class: "facts" })),
      this.fleet.node,
      (this.parts.stagesCard = card("Stages", "full", part("stages", "div", { class: "table" }))),
      (this.parts.eventsCard = card("KV cache, lately", "full", part("events", "div", { class: "table" }))),
    );
  }

  draw(now) {
    const { service } = now;
    this.say({
      about: [
        now.model,
        `context ${now.context.toLocaleString("en")}`,
        `version ${now.version}`,
        `up ${uptime(now.uptime_seconds)}`,
      ].join(" · "),
      speed: short(rounded(this.history.recent("generated"))),
      running: short(service.running),
      waiting: short(service.waiting),
      finished: short(service.jobs_finished_total),
    });
    this.line("speedChart", "Tokens per second over the last minutes", ["prompt", "generated"]);
    this.line("queueChart", "Requests over the last minutes", ["waiting", "running"]);
    this.drawPool(service);
    this.drawLatencies(now.latencies);
    this.drawShares(now);
    this.facts("answerFacts", [
      ["Cancelled", service.jobs_cancelled_total],
      ["Failed", service.jobs_failed_total],
      ["Rejected, queue full", service.jobs_refused_total],
      ["Preempted", service.preemptions_total],
    ]);
    // A fleet has a card of its own.
    this.parts.stagesCard.hidden = this.fleet.draw(now);
    this.drawStages();
  }

  say(texts) {
    for (const [name, text] of Object.entries(texts)) this.parts[name].textContent = text;
  }

  line(name, label, names) {
    const lines = names.map((series) => ({ name: series, points: this.history.points(series) }));
    timeChart({ node: this.parts[name], lines, label });
  }

  drawPool(service) {
    // Sliding-window layers have pages of their own, and so have the newest tokens of a quantised cache.
    const [pages, held, cached] = ["pages", "pages_held", "pages_cached"].map(
      (name) => service[`kv_${name}`] + service[`kv_window_${name}`] + service[`kv_tail_${name}`],
    );
    const lent = service.kv_pages_lent;
    const free = Math.max(0, pages - held - cached - lent);
    const counts = [
      { name: "held", count: held },
      { name: "cached", count: cached },
      { name: "lent", count: lent },
      { name: "free", count: free },
    ];
    const perCell = poolMap({
      node: this.parts.poolMap,
      counts,
      label: `${held} pages held, ${cached} cached, ${lent} lent to adapters, ${free} free`,
    });
    const cell = perCell > 1 ? `One square is ${perCell} pages.` : "One square is one page.";
    const note = pages === 0 ? "Allocated with the first request." : cell;
    this.say({
      pool: percent(held + cached + lent, pages),
      held: short(held),
      cached: short(cached),
      lent: short(lent),
      free: short(free),
      poolNote: note,
    });
  }

  /** What happened to the KV cache lately, the newest first; nothing is drawn where nothing happened. */
  drawEvents({ events, now_seconds: now }) {
    this.parts.eventsCard.hidden = events.length === 0;
    const cells = ({ at_seconds: at, what, count, reason }) => [
      `${uptime(Math.max(0, now - at))} ago`,
      what,
      short(count),
      reason,
    ];
    const rows = events.slice(-MOST_EVENTS).reverse().map(cells);
    this.parts.events.replaceChildren(table(["When", "What", "How many", "Why"], rows));
  }

  drawLatencies(latencies) {
    const hidden = (text) => element("span", { class: "hidden-label" }, text);
    const head = element(
      "tr",
      {},
      element("th", { scope: "col" }, hidden("What")),
      ...["p50", "p95", "p99"].map((text) => element("th", { scope: "col", class: text }, text)),
      element("th", { scope: "col", class: "range-cell" }, hidden("Range"), rangeScale()),
    );
    const rows = LATENCIES.map(([name, text]) => {
      const { count, p50, p95, p99 } = latencies[name];
      const numbers = [p50, p95, p99].map((value) => element("td", {}, duration(value)));
      const range = count > 0 ? rangeRow({ low: p50, middle: p95, high: p99 }) : null;
      return element(
        "tr",
        {},
        element("th", { scope: "row" }, text),
        ...numbers,
        element("td", { class: "range-cell" }, range),
      );
    });
    this.parts.latencies.replaceChildren(
      element("table", { class: "latencies" }, element("thead", {}, head), element("tbody", {}, ...rows)),
      element("p", { class: "quiet" }, "Since the server started."),
    );
  }

  drawShares(now) {
    const { service } = now;
    const share = (name, bar, part) => {
      this.parts[name].textContent = part.whole > 0 ? percent(part.of, part.whole) : "–";
      this.parts[bar].replaceChildren(
        element("progress", { max: 1, value: part.whole > 0 ? part.of / part.whole : 0, "aria-label": part.label }),
      );
    };
    const {
      prefix_tokens_total: reused,
      prompt_tokens_total: read,
      drafted_tokens_total: drafted,
      accepted_tokens_total: accepted,
    } = service;
    share("prefix", "prefixBar", { of: reused, whole: reused + read, label: "Share of prompt tokens reused" });
    share("speculation", "speculationBar", {
      of: accepted,
      whole: drafted,
      label: "Share of draft tokens accepted",
    });
    this.facts("prefixFacts", [
      ["Tokens reused", reused],
      ["Tokens computed", read],
      ["Pages evicted", service.evictions_total],
    ]);
    this.facts("speculationFacts", [
      ["Draft tokens", drafted],
      ["Accepted", accepted],
    ]);
  }

  facts(name, pairs) {
    this.parts[name].replaceChildren(
      ...pairs.flatMap(([text, value]) => [element("dt", {}, text), element("dd", {}, short(value))]),
    );
  }

  /** One stage: all layers run on this machine. */
  drawStages() {
    const steps = this.history.recent("steps");
    const stages = [
      {
        name: "This machine",
        layers: "all",
        busy: this.history.recent("busy"),
        steps,
        rows: steps > 0 ? this.history.recent("rows") / steps : 0,
      },
    ];
    const cells = ({ name, layers, busy, steps: rate, rows }) => [
      name,
      layers,
      percent(Math.min(busy, 1), 1),
      short(rounded(rate)),
      rows.toFixed(1),
    ];
    const heads = ["Stage", "Layers", "Busy", "Steps per second", "Tokens per step"];
    this.parts.stages.replaceChildren(table(heads, stages.map(cells)));
  }
}

function table(heads, rows) {
  const row = (tag, texts) => element("tr", {}, ...texts.map((text) => element(tag, {}, text)));
  const body = element("tbody", {}, ...rows.map((texts) => row("td", texts)));
  return element("table", { class: "stages" }, element("thead", {}, row("th", heads)), body);
}

function card(title, size, ...children) {
  return element("section", { class: `card ${size}`, "aria-label": title }, element("h2", {}, title), ...children);
}

function rounded(value) {
  return value >= 100 ? Math.round(value) : Math.round(value * 10) / 10;
}

function percent(of, whole) {
  const part = whole > 0 ? (100 * of) / whole : 0;
  return `${part > 0 && part < 10 ? part.toFixed(1) : Math.round(part)} %`;
}

function uptime(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}
