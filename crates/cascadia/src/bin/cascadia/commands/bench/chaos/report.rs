//! What the drill found, for people and for programs.

use std::time::Instant;

use cascadia_eval::load::Quantiles;
use clap::ValueEnum;
use serde_json::{Value, json};

use super::fault::Strike;
use super::streams::Heard;
use crate::flags::{ChaosFlags, Fault};

/// Numbers of a whole run.
pub(super) struct Report {
    settings: Value,
    seconds: f64,
    rows: Vec<Row>,
    strikes: Vec<Value>,
    answers: u64,
    tokens: u64,
    differing: u64,
    dropped: Vec<String>,
    /// Replies that came too late to count.
    late: u64,
}

/// Numbers of one kind of fault.
struct Row {
    name: String,
    count: usize,
    /// Of those, how many hit a machine that computed; the rest is about these.
    computed: usize,
    /// What nobody noticed, and should have.
    unnoticed: usize,
    noticing: Quantiles,
    pause: Quantiles,
}

impl Report {
    /// Of these faults and what streams heard meanwhile.
    pub(super) fn of(
        flags: &ChaosFlags,
        strikes: &[Strike],
        (heard, late): (Vec<Heard>, u64),
        begin: Instant,
    ) -> Report {
        let row = |fault: &Fault| {
            let all: Vec<&Strike> = strikes.iter().filter(|strike| strike.fault == *fault).collect();
            let hits: Vec<&Strike> = all.iter().copied().filter(|strike| strike.computed).collect();
            let noticed = |strike: &&Strike| strike.noticed.map(|noticed| (noticed - strike.at).as_secs_f64());
            let noticing: Vec<f64> = hits.iter().filter_map(noticed).collect();
            let pauses = hits.iter().flat_map(|strike| heard.iter().filter_map(|heard| pause(strike, heard))).collect();
            Row {
                name: fault.name(),
                count: all.len(),
                computed: hits.len(),
                unnoticed: hits.iter().filter(|strike| strike.unnoticed).count(),
                noticing: Quantiles::of(noticing),
                pause: Quantiles::of(pauses),
            }
        };
        let told = |strike: &Strike| {
            let noticed = strike.noticed.map(|noticed| (noticed - strike.at).as_secs_f64());
            let longest = heard.iter().filter_map(|heard| pause(strike, heard)).fold(0.0, f64::max);
            json!({"fault": strike.fault.name(), "stage": strike.stage, "computed": strike.computed, "at_s": (strike.at - begin).as_secs_f64(), "noticed_s": noticed, "longest_pause_s": longest})
        };
        let sum = |count: fn(&Heard) -> u64| heard.iter().map(count).sum();
        Report {
            settings: json!({"seed": flags.seed, "fault": flags.fault.map(Fault::name), "times": flags.kills, "absence_ms": flags.absence_ms, "streams": flags.streams, "stages": flags.stages}),
            seconds: begin.elapsed().as_secs_f64(),
            rows: Fault::value_variants().iter().map(row).collect(),
            strikes: strikes.iter().map(told).collect(),
            answers: sum(|heard| heard.answers),
            tokens: sum(|heard| heard.tokens),
            differing: sum(|heard| heard.differing),
            dropped: heard.iter().flat_map(|heard| heard.dropped.clone()).collect(),
            late,
        }
    }

    /// Whether every answer was what one process gives, and every loss was noticed.
    pub(super) fn is_clean(&self) -> bool {
        self.dropped.is_empty() && self.differing == 0 && self.rows.iter().all(|row| row.unnoticed == 0)
    }

    /// A table.
    pub(super) fn text(&self) -> String {
        let Report { seconds, answers, tokens, differing, dropped, late, .. } = self;
        let mut text = format!(
            "{answers} answers of {tokens} tokens in {seconds:.0} s: {} dropped, {differing} tokens differ, {late} late replies refused\n\n\
             milliseconds             noticed after                 longest pause of a stream\n\
             fault     times  hits    p50      p99      most        p50      p99      most\n",
            dropped.len()
        );
        for Row { name, count, computed, noticing, pause, .. } in self.rows.iter().filter(|row| row.count > 0) {
            let milliseconds = |Quantiles { p50, p99, most, .. }: &Quantiles| {
                [p50, p99, most].map(|seconds| format!("{:7.0}", seconds * 1e3)).join("  ")
            };
            let (noticing, pause) = (milliseconds(noticing), milliseconds(pause));
            text.push_str(&format!("{name:8} {count:6} {computed:5} {noticing}    {pause}\n"));
        }
        dropped.iter().for_each(|problem| text.push_str(&format!("dropped: {problem}\n")));
        text
    }

    /// One object.
    pub(super) fn object(&self) -> Value {
        let quantiles = |Quantiles { count, p50, p99, most, .. }: &Quantiles| json!({"count": count, "p50": p50, "p99": p99, "max": most});
        let row = |row: &Row| json!({"fault": row.name, "count": row.count, "computed": row.computed, "unnoticed": row.unnoticed, "noticed_s": quantiles(&row.noticing), "pause_s": quantiles(&row.pause)});
        json!({
            "settings": self.settings,
            "seconds": self.seconds,
            "answers": self.answers,
            "tokens": self.tokens,
            "differing_tokens": self.differing,
            "dropped": self.dropped,
            "late_replies": self.late,
            "faults": self.rows.iter().map(row).collect::<Vec<_>>(),
            "each": self.strikes,
        })
    }
}

/// The longest pause of a stream that began before a loss was noticed and ended after it happened.
fn pause(strike: &Strike, heard: &Heard) -> Option<f64> {
    let known = strike.noticed.unwrap_or(strike.at);
    let pauses = heard.times.windows(2).filter(|pair| pair[0] < known && pair[1] > strike.at);
    pauses.map(|pair| (pair[1] - pair[0]).as_secs_f64()).reduce(f64::max)
}
