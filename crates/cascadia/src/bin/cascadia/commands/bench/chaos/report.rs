//! What the run found, for people and for programs.

use std::time::Instant;

use cascadia_eval::load::Quantiles;
use clap::ValueEnum;
use serde_json::{Value, json};

use super::fault::InjectedFault;
use super::streams::StreamLog;
use crate::flags::{ChaosFlags, Fault};

/// Numbers of a whole run.
pub(super) struct Report {
    settings: Value,
    seconds: f64,
    rows: Vec<Row>,
    injected: Vec<Value>,
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
    /// Of these faults and what streams received meanwhile.
    pub(super) fn of(
        flags: &ChaosFlags,
        injected: &[InjectedFault],
        (logs, late): (Vec<StreamLog>, u64),
        begin: Instant,
    ) -> Report {
        let row = |fault: &Fault| {
            let all: Vec<&InjectedFault> = injected.iter().filter(|injection| injection.fault == *fault).collect();
            let hits: Vec<&InjectedFault> = all.iter().copied().filter(|injection| injection.computed).collect();
            let noticed =
                |injection: &&InjectedFault| injection.noticed.map(|noticed| (noticed - injection.at).as_secs_f64());
            let noticing: Vec<f64> = hits.iter().filter_map(noticed).collect();
            let pauses =
                hits.iter().flat_map(|injection| logs.iter().filter_map(|log| pause(injection, log))).collect();
            Row {
                name: fault.name(),
                count: all.len(),
                computed: hits.len(),
                unnoticed: hits.iter().filter(|injection| injection.unnoticed).count(),
                noticing: Quantiles::of(noticing),
                pause: Quantiles::of(pauses),
            }
        };
        let told = |injection: &InjectedFault| {
            let noticed = injection.noticed.map(|noticed| (noticed - injection.at).as_secs_f64());
            let longest = logs.iter().filter_map(|log| pause(injection, log)).fold(0.0, f64::max);
            json!({"fault": injection.fault.name(), "stage": injection.stage, "computed": injection.computed, "at_s": (injection.at - begin).as_secs_f64(), "noticed_s": noticed, "longest_pause_s": longest})
        };
        let sum = |count: fn(&StreamLog) -> u64| logs.iter().map(count).sum();
        Report {
            settings: json!({"seed": flags.seed, "fault": flags.fault.map(Fault::name), "times": flags.kills, "absence_ms": flags.absence_ms, "streams": flags.streams, "stages": flags.stages}),
            seconds: begin.elapsed().as_secs_f64(),
            rows: Fault::value_variants().iter().map(row).collect(),
            injected: injected.iter().map(told).collect(),
            answers: sum(|log| log.answers),
            tokens: sum(|log| log.tokens),
            differing: sum(|log| log.differing),
            dropped: logs.iter().flat_map(|log| log.dropped.clone()).collect(),
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
            "each": self.injected,
        })
    }
}

/// The longest pause of a stream that began before a loss was noticed and ended after it happened.
fn pause(injection: &InjectedFault, log: &StreamLog) -> Option<f64> {
    let known = injection.noticed.unwrap_or(injection.at);
    let pauses = log.times.windows(2).filter(|pair| pair[0] < known && pair[1] > injection.at);
    pauses.map(|pair| (pair[1] - pair[0]).as_secs_f64()).reduce(f64::max)
}
