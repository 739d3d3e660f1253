//! `/api/tags`, `/api/show` and `/api/version`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::clock;
use crate::app::App;
use crate::error::ApiError;
use crate::model::frontend::ModelFrontend;
use crate::protocols::{json, parse, read_body};

/// Which model to show.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ShowRequest {
    /// Its name.
    #[serde(alias = "name")]
    model: Option<String>,
}

/// The version of the server.
pub(crate) async fn version() -> Response {
    json(&json!({"version": env!("CARGO_PKG_VERSION")}))
}

/// The models on this machine: the one that is served.
pub(crate) async fn tags(State(app): State<Arc<App>>) -> Response {
    let frontend = app.model.current();
    let model = &frontend.model;
    let name = format!("{}:latest", model.name);
    json(&json!({"models": [{
        "name": name,
        "model": name,
        "modified_at": clock::timestamp(frontend.created),
        "size": model.details.bytes,
        "digest": model.details.digest,
        "details": details(&frontend),
    }]}))
}

/// Details of the model.
pub(crate) async fn show(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let frontend = app.model.current();
    let for_reading = Arc::clone(&frontend);
    read_body(&app, request, move |bytes| {
        let body: ShowRequest = parse(bytes)?;
        for_reading.check_model(body.model.as_deref())
    })
    .await?;
    let model = &frontend.model;
    let mut capabilities = vec!["completion"];
    capabilities.extend(frontend.reply_format.supports_tools().then_some("tools"));
    Ok(json(&json!({
        "modelfile": "",
        "parameters": "",
        "template": model.text.template().unwrap_or_default(),
        "details": details(&frontend),
        "model_info": {
            "general.architecture": model.details.family,
            "general.parameter_count": model.details.parameters,
            "context_length": model.service.context(),
        },
        "capabilities": capabilities,
        "modified_at": clock::timestamp(frontend.created),
    })))
}

fn details(frontend: &ModelFrontend) -> Value {
    let details = &frontend.model.details;
    json!({
        "parent_model": "",
        "format": "gguf",
        "family": details.family,
        "families": [details.family],
        "parameter_size": format!("{:.1}M", details.parameters as f64 / 1e6),
        "quantization_level": details.format,
    })
}
