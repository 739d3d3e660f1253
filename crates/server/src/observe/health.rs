//! Probes: whether the server is alive, and whether it is ready.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde_json::json;

use crate::app::App;
use crate::error::{ApiError, ErrorKind};
use crate::protocols::json;

/// Always yes: a supervisor kills processes that do not answer, and a busy one must not be killed.
pub(crate) async fn live() -> &'static str {
    "ok\n"
}

/// Whether the next request would be accepted.
pub(crate) async fn ready(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let frontend = app.model.current();
    let waiting = frontend.model.service.snapshot().waiting;
    if waiting >= frontend.model.queue as u64 {
        return Err(ApiError::new(
            ErrorKind::Unavailable,
            format!("{waiting} requests are waiting already; send others elsewhere"),
        ));
    }
    Ok(json(&json!({"status": "ready"})))
}

/// A short summary.
pub(crate) async fn health(State(app): State<Arc<App>>) -> Response {
    let frontend = app.model.current();
    let snapshot = frontend.model.service.snapshot();
    json(&json!({
        "status": "ok",
        "model": frontend.model.name,
        "version": env!("CARGO_PKG_VERSION"),
        "waiting": snapshot.waiting,
        "running": snapshot.running,
        "uptime_seconds": app.metrics.started.elapsed().as_secs(),
    }))
}
