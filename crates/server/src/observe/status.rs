//! `/metrics` and `/status`: what the server is doing, for Prometheus and for the dashboard.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Extension;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use cascadia_engine::service::schedule::TenantShare;
use cascadia_engine::service::spill::SpillStatus;
use cascadia_engine::service::{Snapshot, Tenant};
use cascadia_text::FormatWork;
use serde_json::{Value, json};

use super::adapters;
use crate::app::App;
use crate::model::frontend::{Caller, ModelFrontend};
use crate::model::keep_alive::KeepAlive;
use crate::model::on_demand::OfferedModel;
use crate::observe::fleet_board::FleetBoard;
use crate::observe::metrics::{Histogram, Metrics};
use crate::protocols::json;

/// Every this many buckets of a histogram go to Prometheus.
const BUCKETS_PER_LINE: usize = 3;

/// Whether a number only grows.
#[derive(Clone, Copy)]
pub(super) enum MetricKind {
    Counter,
    Gauge,
}

/// A number: its name, what it is, and where it is found.
type Number<T> = (&'static str, MetricKind, &'static str, fn(&T) -> f64);

const NUMBERS: &[Number<Snapshot>] = &[
    ("waiting", MetricKind::Gauge, "Jobs in the queue.", |s| s.waiting as f64),
    ("running", MetricKind::Gauge, "Jobs that are being computed.", |s| s.running as f64),
    ("preempted", MetricKind::Gauge, "Jobs preempted by others that wait to continue.", |s| s.preempted as f64),
    ("batch_size", MetricKind::Gauge, "Tokens computed per step, on average.", |s| {
        ratio(s.step_rows as f64, s.steps as f64)
    }),
    ("memory_percent", MetricKind::Gauge, "Used memory of the machine or its control group, in percent.", |s| {
        f64::from(s.memory_percent)
    }),
    ("kv_pages", MetricKind::Gauge, "Pages of the KV cache.", |s| s.pages as f64),
    ("kv_pages_held", MetricKind::Gauge, "Pages that running jobs hold.", |s| s.pages_held as f64),
    ("kv_pages_cached", MetricKind::Gauge, "Pages kept in the prefix cache.", |s| s.pages_cached as f64),
    ("kv_pages_lent", MetricKind::Gauge, "Pages whose memory is lent.", |s| s.pages_lent as f64),
    ("kv_window_pages", MetricKind::Gauge, "Pages of sliding-window layers.", |s| s.window_pages as f64),
    ("kv_window_pages_held", MetricKind::Gauge, "Of those, pages that running jobs hold.", |s| {
        s.window_pages_held as f64
    }),
    ("kv_window_pages_cached", MetricKind::Gauge, "Of those, pages kept in the prefix cache.", |s| {
        s.window_pages_cached as f64
    }),
    ("kv_tail_pages", MetricKind::Gauge, "Pages of the newest tokens of a quantised cache.", |s| s.tail_pages as f64),
    ("kv_tail_pages_held", MetricKind::Gauge, "Of those, pages that running jobs hold.", |s| s.tail_pages_held as f64),
    ("kv_tail_pages_cached", MetricKind::Gauge, "Of those, pages kept in the prefix cache.", |s| {
        s.tail_pages_cached as f64
    }),
    ("jobs_finished_total", MetricKind::Counter, "Jobs that finished.", |s| s.finished as f64),
    ("jobs_cancelled_total", MetricKind::Counter, "Jobs whose client disconnected.", |s| s.cancelled as f64),
    ("jobs_failed_total", MetricKind::Counter, "Jobs that ended with an error.", |s| s.failed as f64),
    ("panics_total", MetricKind::Counter, "Panics that were caught.", |s| s.panics as f64),
    ("restarts_total", MetricKind::Counter, "Restarts of the engine after a panic.", |s| s.restarts as f64),
    ("jobs_refused_total", MetricKind::Counter, "Jobs refused because the queue was full.", |s| s.refused as f64),
    ("prompt_tokens_total", MetricKind::Counter, "Tokens of prompts that were computed.", |s| s.prompt_tokens as f64),
    ("prefix_tokens_total", MetricKind::Counter, "Tokens of prompts found in the prefix cache.", |s| {
        s.reused_tokens as f64
    }),
    ("generated_tokens_total", MetricKind::Counter, "Tokens of answers.", |s| s.generated_tokens as f64),
    ("steps_total", MetricKind::Counter, "Steps computed.", |s| s.steps as f64),
    ("step_rows_total", MetricKind::Counter, "Tokens computed in all steps.", |s| s.step_rows as f64),
    ("step_seconds_total", MetricKind::Counter, "Seconds spent in steps.", |s| s.step_seconds),
    ("output_seconds_total", MetricKind::Counter, "Of those, seconds of the output matrix.", |s| s.output_seconds),
    ("preemptions_total", MetricKind::Counter, "Jobs preempted to free their pages.", |s| s.preemptions as f64),
    ("evictions_total", MetricKind::Counter, "Cached pages evicted.", |s| s.evictions as f64),
    ("recomputed_tokens_total", MetricKind::Counter, "Tokens computed again.", |s| s.recomputed_tokens as f64),
    ("drafted_tokens_total", MetricKind::Counter, "Draft tokens.", |s| s.drafted_tokens as f64),
    ("accepted_tokens_total", MetricKind::Counter, "Draft tokens that were accepted.", |s| s.accepted_tokens as f64),
];

/// The disk tier of the KV cache, where there is one.
const SPILL_NUMBERS: &[Number<SpillStatus>] = &[
    ("spill_on", MetricKind::Gauge, "Whether the disk is used at the moment.", |s| {
        f64::from(u8::from(s.problem.is_none()))
    }),
    ("spill_pages", MetricKind::Gauge, "Pages of the KV cache on disk.", |s| s.records as f64),
    ("spill_bytes", MetricKind::Gauge, "Bytes of them.", |s| s.bytes as f64),
    ("spill_most_bytes", MetricKind::Gauge, "The most bytes on disk.", |s| s.most_bytes as f64),
    ("spill_waiting_bytes", MetricKind::Gauge, "Bytes that wait to be written.", |s| s.waiting_bytes as f64),
    ("spill_written_total", MetricKind::Counter, "Pages written to disk.", |s| s.written as f64),
    ("spill_written_bytes_total", MetricKind::Counter, "Bytes of them.", |s| s.written_bytes as f64),
    ("spill_dropped_total", MetricKind::Counter, "Pages lost: the disk was too slow or not used.", |s| {
        s.dropped as f64
    }),
    ("spill_restored_total", MetricKind::Counter, "Pages that came back into memory.", |s| s.restored as f64),
    ("spill_restored_bytes_total", MetricKind::Counter, "Bytes of them.", |s| s.restored_bytes as f64),
    ("spill_absent_total", MetricKind::Counter, "Prompts whose next page was not on disk.", |s| s.absent as f64),
    ("spill_damaged_total", MetricKind::Counter, "Records that were not what was written.", |s| s.damaged as f64),
    ("spill_unreadable_total", MetricKind::Counter, "Records that the disk did not read.", |s| s.unreadable as f64),
];

/// What structured output costs, which all steps share.
const FORMAT_NUMBERS: &[Number<FormatWork>] = &[
    ("format_tokens_total", MetricKind::Counter, "Tokens that had to fit an output format.", |w| w.tokens as f64),
    ("format_masks_total", MetricKind::Counter, "Masks computed for them.", |w| w.masks as f64),
    ("format_items_total", MetricKind::Counter, "Parser items of these masks.", |w| w.items as f64),
    ("format_tokenized_bytes_total", MetricKind::Counter, "Bytes of forced text that were tokenised.", |w| {
        w.tokenized_bytes as f64
    }),
];

/// A duration that the server measures: its name, what it is, and where it is found.
type Duration = (&'static str, &'static str, fn(&Metrics) -> &Histogram);

const DURATIONS: &[Duration] = &[
    ("queue_seconds", "From submission to the start of a job.", |m| &m.queue_time),
    ("time_to_first_token_seconds", "From submission to the first token.", |m| &m.first_token),
    ("inter_token_seconds", "From token to token.", |m| &m.inter_token),
    ("end_to_end_seconds", "From submission to the end of the answer.", |m| &m.end_to_end),
];

/// The numbers in Prometheus' text format.
pub(crate) async fn metrics(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>) -> Response {
    let frontend = app.model.current();
    let observed: Vec<Observed> = match &app.on_demand {
        None => vec![Observed::new(&frontend, String::new())],
        Some(_) => {
            app.in_memory().iter().map(|frontend| Observed::new(frontend, label(&frontend.model.name))).collect()
        }
    };
    let mut text = prometheus(&observed, &app.metrics);
    if let Some(served) = &frontend.model.adapters {
        adapters::prometheus(&mut text, served, &app.metrics.adapter_requests, &caller);
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

/// The numbers as JSON. Of tenants, the caller sees its own; of adapters, those it may use.
pub(crate) async fn status(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>) -> Response {
    let frontend = app.model.current();
    let service = &frontend.model.service;
    let (snapshot, work, metrics) = (service.snapshot(), frontend.format_work(), &app.metrics);
    let numbers = numbers(&snapshot).chain(values(FORMAT_NUMBERS, &work));
    let numbers = numbers.map(|(name, value)| (name.to_owned(), value.into())).collect::<serde_json::Map<_, _>>();
    let latencies = DURATIONS.iter().map(|(name, _, find)| ((*name).to_owned(), quantiles(find(metrics))));
    json(&json!({
        "model": frontend.model.name,
        "models": app.offered().into_iter().map(offered).collect::<Vec<Value>>(),
        "version": env!("CARGO_PKG_VERSION"),
        "context": service.context(),
        "uptime_seconds": metrics.started.elapsed().as_secs_f64(),
        "connections": load(&metrics.connections),
        "requests_in_flight": load(&metrics.in_flight),
        "responses": metrics.responses.iter().map(load).collect::<Vec<u64>>(),
        "service": numbers,
        "spill": snapshot.spill.as_ref().map(spill),
        "adapters": frontend.model.adapters.as_ref().map(|served| adapters::summary(served, &caller)),
        "tenants": own_share(&snapshot.tenants, caller.tenant),
        "latencies": latencies.collect::<serde_json::Map<_, _>>(),
        "on_fleet": app.fleet.is_some(),
        "fleet": app.fleet.as_ref().map(FleetBoard::read),
        "speculation_acceptance": ratio(snapshot.accepted_tokens as f64, snapshot.drafted_tokens as f64),
        "prefix_hit_rate":
            ratio(snapshot.reused_tokens as f64, snapshot.reused_tokens as f64 + snapshot.prompt_tokens as f64),
    }))
}

/// The numbers of a service by their names.
pub(super) fn numbers(snapshot: &Snapshot) -> impl Iterator<Item = (&'static str, f64)> {
    values(NUMBERS, snapshot)
}

/// A model that requests may name, and what it is doing.
fn offered(model: OfferedModel<'_>) -> Value {
    match model {
        OfferedModel::Stored(model, _) => json!({"name": model.name, "loaded": false}),
        OfferedModel::InMemory(frontend, KeepAlive(left)) => {
            let snapshot = frontend.model.service.snapshot();
            json!({
                "name": frontend.model.name,
                "loaded": true,
                "waiting": snapshot.waiting,
                "running": snapshot.running,
                "unloaded_in_seconds": left.map(|left| left.as_secs_f64()),
            })
        }
    }
}

/// The disk tier: its numbers, and why it is not used.
fn spill(status: &SpillStatus) -> Value {
    let numbers = values(SPILL_NUMBERS, status).map(|(name, value)| (name.to_owned(), value.into()));
    let mut object: serde_json::Map<String, Value> = numbers.collect();
    object.insert("problem".to_owned(), json!(status.problem));
    object.into()
}

/// What a tenant may see of who is served: itself, by a hash of its name, which stays in the key file. What all have
/// together is among the numbers of the service.
pub(super) fn own_share(tenants: &[TenantShare], caller: Tenant) -> Vec<Value> {
    let own = tenants.iter().filter(|share| share.tenant == caller);
    let object = |share: &TenantShare| {
        let name = format!("{:016x}", share.tenant.0);
        json!({"tenant": name, "waiting": share.waiting, "running": share.running, "rows": share.rows})
    };
    own.map(object).collect()
}

fn quantiles(histogram: &Histogram) -> Value {
    json!({
        "count": histogram.count(),
        "mean": ratio(histogram.sum(), histogram.count() as f64),
        "p50": histogram.quantile(0.5),
        "p95": histogram.quantile(0.95),
        "p99": histogram.quantile(0.99),
    })
}

/// The numbers of a table by name.
fn values<T>(numbers: &'static [Number<T>], of: &T) -> impl Iterator<Item = (&'static str, f64)> {
    numbers.iter().map(|(name, _, _, value)| (*name, value(of)))
}

/// What a model is doing, and how its numbers are told from those of others.
struct Observed {
    label: String,
    snapshot: Snapshot,
    work: FormatWork,
}

impl Observed {
    fn new(frontend: &ModelFrontend, label: String) -> Observed {
        Observed { label, snapshot: frontend.model.service.snapshot(), work: frontend.format_work() }
    }
}

/// A model's name as Prometheus reads it.
fn label(model: &str) -> String {
    format!("{{model=\"{}\"}}", model.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n"))
}

fn prometheus(models: &[Observed], metrics: &Metrics) -> String {
    let mut out = String::new();
    table(&mut out, NUMBERS, models, |model| Some(&model.snapshot));
    table(&mut out, FORMAT_NUMBERS, models, |model| Some(&model.work));
    table(&mut out, SPILL_NUMBERS, models, |model| model.snapshot.spill.as_ref());
    number(&mut out, ("connections", MetricKind::Gauge, "Open connections."), load(&metrics.connections) as f64);
    let in_flight = ("requests_in_flight", MetricKind::Gauge, "Requests whose response is not complete.");
    number(&mut out, in_flight, load(&metrics.in_flight) as f64);
    let known =
        ("resumed_known_tokens_total", MetricKind::Counter, "Tokens of resumed streams that the resume log had.");
    number(&mut out, known, load(&metrics.known_tokens) as f64);
    let again = "Tokens of resumed streams that were computed again although the client had them.";
    number(
        &mut out,
        ("resumed_recomputed_tokens_total", MetricKind::Counter, again),
        load(&metrics.regenerated) as f64,
    );
    let _ = writeln!(out, "# HELP cascadia_responses_total Responses by the first digit of their status.");
    let _ = writeln!(out, "# TYPE cascadia_responses_total counter");
    for (class, count) in metrics.responses.iter().enumerate().skip(1) {
        let _ = writeln!(out, "cascadia_responses_total{{class=\"{class}xx\"}} {}", load(count));
    }
    for (name, help, find) in DURATIONS {
        histogram(&mut out, (name, help), find(metrics));
    }
    out
}

/// The numbers of a table, each of all models that have it.
fn table<T>(
    out: &mut String,
    numbers: &[Number<T>],
    models: &[Observed],
    find: impl for<'a> Fn(&'a Observed) -> Option<&'a T>,
) {
    for (name, kind, help, value) in numbers {
        let of_models: Vec<(&str, f64)> =
            models.iter().filter_map(|model| Some((model.label.as_str(), value(find(model)?)))).collect();
        labelled(out, (name, *kind, help), &of_models);
    }
}

pub(super) fn number(out: &mut String, facts: (&str, MetricKind, &str), value: f64) {
    labelled(out, facts, &[("", value)]);
}

/// A number with the values that it has under each label.
fn labelled(out: &mut String, (name, kind, help): (&str, MetricKind, &str), values: &[(&str, f64)]) {
    if values.is_empty() {
        return;
    }
    let kind = match kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
    };
    // Writing to a string cannot fail.
    let _ = writeln!(out, "# HELP cascadia_{name} {help}\n# TYPE cascadia_{name} {kind}");
    for (label, value) in values {
        let _ = writeln!(out, "cascadia_{name}{label} {value}");
    }
}

fn histogram(out: &mut String, (name, help): (&str, &str), histogram: &Histogram) {
    let _ = writeln!(out, "# HELP cascadia_{name} {help}\n# TYPE cascadia_{name} histogram");
    let mut total = 0;
    for (end, below) in histogram.cumulative().step_by(BUCKETS_PER_LINE) {
        let _ = writeln!(out, "cascadia_{name}_bucket{{le=\"{end:.4}\"}} {below}");
        total = below;
    }
    total = total.max(histogram.count());
    let _ = writeln!(out, "cascadia_{name}_bucket{{le=\"+Inf\"}} {total}");
    let _ = writeln!(out, "cascadia_{name}_sum {}\ncascadia_{name}_count {total}", histogram.sum());
}

fn load(number: &AtomicU64) -> u64 {
    number.load(Ordering::Relaxed)
}

/// A quotient; 0 of nothing.
fn ratio(of: f64, whole: f64) -> f64 {
    if whole > 0.0 { of / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_not_used_says_why() {
        let problem = Some("cannot write a file: no space left".to_owned());
        let status = SpillStatus { problem, records: 3, damaged: 2, ..SpillStatus::default() };
        let shown = spill(&status);
        assert_eq!(shown["problem"], "cannot write a file: no space left");
        assert_eq!([&shown["spill_on"], &shown["spill_pages"], &shown["spill_damaged_total"]], [0.0, 3.0, 2.0]);
        let observed =
            |label: &str, snapshot| Observed { label: label.to_owned(), snapshot, work: FormatWork::default() };
        let spilling = observed("", Snapshot { spill: Some(status), ..Snapshot::default() });
        let text = prometheus(&[spilling], &Metrics::default());
        assert!(text.contains("\ncascadia_spill_on 0\n") && text.contains("\ncascadia_spill_pages 3\n"), "{text}");
        let without = prometheus(&[observed("", Snapshot::default())], &Metrics::default());
        assert!(!without.contains("spill"), "there is none");
    }

    #[test]
    fn every_model_has_its_numbers() {
        let observed = |model: &str, running| {
            let snapshot = Snapshot { running, ..Snapshot::default() };
            Observed { label: label(model), snapshot, work: FormatWork::default() }
        };
        let text = prometheus(&[observed("a", 1), observed("b\\\"", 2)], &Metrics::default());
        let expected =
            "# TYPE cascadia_running gauge\ncascadia_running{model=\"a\"} 1\ncascadia_running{model=\"b\\\\\\\"\"} 2\n";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn a_tenant_sees_itself_alone() {
        let share = |tenant: u64| TenantShare { tenant: Tenant(tenant), waiting: 1, running: 2, rows: 3 };
        let tenants = [share(7), share(8)];
        let own = json!([{"tenant": "0000000000000007", "waiting": 1, "running": 2, "rows": 3}]);
        assert_eq!(json!(own_share(&tenants, Tenant(7))), own);
        assert!(own_share(&tenants, Tenant(9)).is_empty());
    }
}
