//! `/v1/models`.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use serde_json::{Value, json};

use crate::app::App;
use crate::error::ApiError;
use crate::model_frontend::ModelFrontend;
use crate::protocol::json;

/// The list of the one model that is served.
pub(crate) async fn list(State(app): State<Arc<App>>) -> Response {
    json(&json!({"object": "list", "data": [model(&app.desk())]}))
}

/// One model.
pub(crate) async fn one(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Response, ApiError> {
    let desk = app.desk();
    desk.check_model(Some(&id))?;
    Ok(json(&model(&desk)))
}

fn model(desk: &ModelFrontend) -> Value {
    json!({
        "id": desk.model.name,
        "object": "model",
        "created": desk.created,
        "owned_by": "cascadia",
        "context_length": desk.model.service.context(),
    })
}
