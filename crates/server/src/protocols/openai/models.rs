//! `/v1/models`.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use serde_json::{Value, json};

use crate::app::App;
use crate::error::ApiError;
use crate::model::frontend::ModelFrontend;
use crate::protocols::json;

/// The list of the one model that is served.
pub(crate) async fn list(State(app): State<Arc<App>>) -> Response {
    json(&json!({"object": "list", "data": [model(&app.model.current())]}))
}

/// One model.
pub(crate) async fn one(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Response, ApiError> {
    let frontend = app.model.current();
    frontend.check_model(Some(&id))?;
    Ok(json(&model(&frontend)))
}

fn model(frontend: &ModelFrontend) -> Value {
    json!({
        "id": frontend.model.name,
        "object": "model",
        "created": frontend.created,
        "owned_by": "cascadia",
        "context_length": frontend.model.service.context(),
    })
}
