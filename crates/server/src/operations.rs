//! How the server is: alive, ready.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde_json::json;

use crate::app::App;
use crate::error::{ApiError, Kind};
use crate::protocol::json;

/// Always yes: what asks this ends processes that do not answer, and a busy one must not be ended.
pub(crate) async fn live() -> &'static str {
    "ok\n"
}

/// Whether the next request would be taken.
pub(crate) async fn ready(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let desk = app.desk();
    let waiting = desk.model.service.snapshot().waiting;
    if waiting >= desk.model.queue as u64 {
        return Err(ApiError::new(
            Kind::Unavailable,
            format!("{waiting} requests wait already; send others elsewhere"),
        ));
    }
    Ok(json(&json!({"status": "ready"})))
}

/// How it is, in short.
pub(crate) async fn health(State(app): State<Arc<App>>) -> Response {
    let desk = app.desk();
    let snapshot = desk.model.service.snapshot();
    json(&json!({
        "status": "ok",
        "model": desk.model.name,
        "version": env!("CARGO_PKG_VERSION"),
        "waiting": snapshot.waiting,
        "running": snapshot.running,
        "uptime_seconds": app.metrics.started.elapsed().as_secs(),
    }))
}
