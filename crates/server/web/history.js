// The server's counters of the last minutes, as rates.

/** Samples kept, one per second. */
const LENGTH = 300;

/** Counters whose rate is shown, by the name of the rate. */
const RATES = {
  generated: "generated_tokens_total",
  prompt: "prompt_tokens_total",
  reused: "prefix_tokens_total",
  busy: "step_seconds_total",
  steps: "steps_total",
  rows: "step_rows_total",
};

/** A bounded list of samples, the oldest first. */
export class History {
  constructor() {
    this.clear();
  }

  /** Adds a status of the server, and when it was. */
  add(status, at = Date.now()) {
    // A restarted server counts from zero.
    if (this.before && status.uptime_seconds < this.before.uptime_seconds) this.clear();
    const sample = { at, running: status.service.running, waiting: status.service.waiting };
    const seconds = this.before ? status.uptime_seconds - this.before.uptime_seconds : 0;
    for (const [name, counter] of Object.entries(RATES)) {
      const grown = this.before ? status.service[counter] - this.before.service[counter] : 0;
      // A model that took the place of another counts from zero too.
      sample[name] = seconds > 0 ? Math.max(0, grown) / seconds : 0;
    }
    this.samples = [...this.samples, sample].slice(-LENGTH);
    this.before = status;
  }

  /** Begins with what the server kept of the time before, up to the status of now. */
  begin(samples, { uptime_seconds: uptime }) {
    this.clear();
    const now = Date.now();
    for (const sample of samples) {
      if (sample.uptime_seconds < uptime) this.add(sample, now - (uptime - sample.uptime_seconds) * 1000);
    }
  }

  /** Points of a line: seconds ago, value. */
  points(name) {
    const now = Date.now();
    return this.samples.map((sample) => [(now - sample.at) / 1000, sample[name]]);
  }

  /** The mean of the last seconds. */
  recent(name, seconds = 3) {
    const last = this.samples.slice(-seconds);
    return last.length === 0 ? 0 : last.reduce((sum, sample) => sum + sample[name], 0) / last.length;
  }

  clear() {
    this.samples = [];
    this.before = null;
  }
}
