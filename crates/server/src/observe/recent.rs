//! A few numbers of the last minutes, second by second, so that charts do not begin empty.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use cascadia_engine::service::Snapshot;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use super::metrics::Metrics;
use super::status::numbers;
use crate::app::App;
use crate::model::slot::ModelSlot;
use crate::protocols::json;

/// Samples kept.
const LENGTH: usize = 300;

const EVERY: Duration = Duration::from_secs(1);

/// What is kept of a status.
const NAMES: [&str; 8] = [
    "running",
    "waiting",
    "generated_tokens_total",
    "prompt_tokens_total",
    "prefix_tokens_total",
    "step_seconds_total",
    "steps_total",
    "step_rows_total",
];

/// The samples, the oldest first.
#[derive(Default)]
pub(crate) struct Recent {
    samples: Mutex<VecDeque<Sample>>,
}

struct Sample {
    uptime: Duration,
    values: [f64; NAMES.len()],
}

impl Recent {
    /// Takes a sample every second.
    pub(crate) async fn run(self: Arc<Recent>, model: ModelSlot, metrics: Arc<Metrics>) {
        let mut tick = interval(EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tick.tick().await;
            self.add(metrics.started.elapsed(), &model.current().model.service.snapshot());
        }
    }

    fn add(&self, uptime: Duration, snapshot: &Snapshot) {
        let mut values = [0.0; NAMES.len()];
        for (name, value) in numbers(snapshot) {
            NAMES.iter().zip(&mut values).filter(|(kept, _)| **kept == name).for_each(|(_, kept)| *kept = value);
        }
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() == LENGTH {
            samples.pop_front();
        }
        samples.push_back(Sample { uptime, values });
    }

    fn shown(&self) -> Vec<Value> {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = |sample: &Sample| {
            let values = NAMES.iter().zip(sample.values).map(|(name, value)| ((*name).to_owned(), value.into()));
            json!({
                "uptime_seconds": sample.uptime.as_secs_f64(),
                "service": values.collect::<serde_json::Map<String, Value>>(),
            })
        };
        samples.iter().map(shown).collect()
    }
}

/// Statuses of the last minutes with a few of their numbers, the oldest first.
pub(crate) async fn show(State(app): State<Arc<App>>) -> Response {
    json(&Value::Array(app.recent.shown()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_minutes_are_kept_in_order() {
        let recent = Recent::default();
        for second in 0..LENGTH as u64 + 20 {
            let snapshot = Snapshot { running: second % 3, generated_tokens: 10 * second, ..Snapshot::default() };
            recent.add(Duration::from_secs(second), &snapshot);
        }
        let shown = recent.shown();
        assert_eq!(shown.len(), LENGTH);
        assert_eq!(shown[0]["uptime_seconds"], 20.0);
        assert_eq!(shown[LENGTH - 1]["service"]["generated_tokens_total"], 10.0 * (LENGTH as f64 + 19.0));
        assert_eq!(shown[1]["service"]["running"], 0.0);
    }
}
