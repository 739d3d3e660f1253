//! Probes: whether the server is alive, and whether it is ready.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use cascadia_engine::service::Snapshot;
use serde_json::json;

use crate::app::App;
use crate::error::{ApiError, ErrorKind};
use crate::protocols::json;

/// Yes, unless nothing can be computed any more: a supervisor kills processes that do not answer or say no, and a busy one
/// must not be killed.
pub(crate) async fn live(State(app): State<Arc<App>>) -> Result<&'static str, ApiError> {
    app.in_memory().iter().try_for_each(|frontend| liveness(&frontend.model.service.snapshot()))?;
    Ok("ok\n")
}

/// Whether the next request would be accepted.
pub(crate) async fn ready(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let frontend = app.model.current();
    let snapshot = frontend.model.service.snapshot();
    readiness(&snapshot, frontend.model.queue as u64)?;
    Ok(json(&json!({"status": "ready", "restarts": snapshot.restarts})))
}

/// A short summary.
pub(crate) async fn health(State(app): State<Arc<App>>) -> Response {
    let frontend = app.model.current();
    let snapshot = frontend.model.service.snapshot();
    json(&json!({
        "status": if snapshot.dead { "dead" } else { "ok" },
        "model": frontend.model.name,
        "version": env!("CARGO_PKG_VERSION"),
        "waiting": snapshot.waiting,
        "running": snapshot.running,
        "panics": snapshot.panics,
        "restarts": snapshot.restarts,
        "uptime_seconds": app.metrics.started.elapsed().as_secs(),
    }))
}

fn liveness(snapshot: &Snapshot) -> Result<(), ApiError> {
    if !snapshot.dead {
        return Ok(());
    }
    let message = "the engine has ended after a panic and computes nothing any more; restart the server, and report the \
                   panic in its log";
    Err(ApiError::new(ErrorKind::Unavailable, message))
}

fn readiness(snapshot: &Snapshot, queue: u64) -> Result<(), ApiError> {
    liveness(snapshot)?;
    if snapshot.restarting {
        let message = "the engine restarts after a panic; running requests continue, send others again in a second";
        let retry_after = Some(Duration::from_secs(1));
        return Err(ApiError { retry_after, ..ApiError::new(ErrorKind::Unavailable, message) });
    }
    if snapshot.memory_full {
        let message = format!("{} % of the memory is used; send requests elsewhere", snapshot.memory_percent);
        return Err(ApiError::new(ErrorKind::Unavailable, message));
    }
    let waiting = snapshot.waiting;
    if waiting >= queue {
        let message = format!("{waiting} requests are waiting already; send others elsewhere");
        return Err(ApiError::new(ErrorKind::Unavailable, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_tell_a_busy_engine_from_one_that_restarts_or_has_ended() {
        let idle = Snapshot::default;
        let cases = [
            (idle(), None, true),
            (Snapshot { waiting: 7, restarts: 3, panics: 9, ..idle() }, None, true),
            (Snapshot { waiting: 8, ..idle() }, Some("8 requests are waiting"), true),
            (Snapshot { restarting: true, ..idle() }, Some("restarts after a panic"), true),
            (Snapshot { memory_full: true, memory_percent: 96, ..idle() }, Some("96 % of the memory"), true),
            (Snapshot { dead: true, ..idle() }, Some("computes nothing any more"), false),
        ];
        for (snapshot, unready, alive) in cases {
            let problem = readiness(&snapshot, 8).err().map(|error| error.message);
            assert_eq!(problem.is_some(), unready.is_some(), "{problem:?}");
            assert!(problem.unwrap_or_default().contains(unready.unwrap_or_default()));
            assert_eq!(liveness(&snapshot).is_ok(), alive);
        }
    }
}
