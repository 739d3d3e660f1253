//! `/api/tags`, `/api/show` and `/api/version`.

use std::sync::Arc;

use axum::extract::{Extension, Request, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::clock;
use crate::app::App;
use crate::error::ApiError;
use crate::model::frontend::{Caller, ModelFrontend};
use crate::protocols::{json, parse, read_body};

/// When a model that always stays leaves memory: the end of the year 9999.
const FAR_FUTURE: u64 = 253_402_300_799;

/// Which model to show.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ShowRequest {
    /// Its name.
    #[serde(alias = "name")]
    model: Option<String>,
}

/// The version of Ollama's API that is offered here: clients such as editors compare it with what they need.
const API_VERSION: &str = "0.12.11";

/// The version of Ollama's API, and of the server.
pub(crate) async fn version() -> Response {
    json(&json!({"version": API_VERSION, "cascadia": env!("CARGO_PKG_VERSION")}))
}

/// The models in memory: the one that is served, which stays there.
pub(crate) async fn running(State(app): State<Arc<App>>) -> Response {
    let frontend = app.model.current();
    let model = &frontend.model;
    let name = format!("{}:latest", model.name);
    json(&json!({"models": [{
        "name": name,
        "model": name,
        "size": model.details.bytes,
        "digest": model.details.digest,
        "details": details(&frontend, ""),
        "expires_at": clock::timestamp(FAR_FUTURE),
        "size_vram": 0,
        "context_length": model.service.context(),
    }]}))
}

/// The models on this machine: the one that is served, alone and with each of the adapters that the caller may use.
pub(crate) async fn tags(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>) -> Response {
    let frontend = app.model.current();
    let model = &frontend.model;
    let name = format!("{}:latest", model.name);
    let mut models = vec![json!({
        "name": name,
        "model": name,
        "modified_at": clock::timestamp(frontend.created),
        "size": model.details.bytes,
        "digest": model.details.digest,
        "details": details(&frontend, ""),
    })];
    models.extend(frontend.adapters(&caller).iter().map(|adapter| {
        let name = frontend.with_adapter(&adapter.name);
        json!({
            "name": name,
            "model": name,
            "modified_at": clock::timestamp(frontend.created),
            "size": adapter.bytes,
            "digest": adapter.id.to_string(),
            "details": details(&frontend, &model.name),
        })
    }));
    json(&json!({"models": models}))
}

/// Details of the model.
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let frontend = app.model.current();
    let for_reading = Arc::clone(&frontend);
    let adapter = read_body(&app, request, move |bytes| {
        let body: ShowRequest = parse(bytes)?;
        for_reading.select(body.model.as_deref(), &caller)
    })
    .await?;
    let model = &frontend.model;
    let parent = if adapter.is_some() { model.name.as_str() } else { "" };
    let mut capabilities = vec!["completion"];
    capabilities.extend(frontend.reply_format.supports_tools().then_some("tools"));
    capabilities.extend(frontend.reply_format.reasons().then_some("thinking"));
    capabilities.extend(model.text.infill().is_some().then_some("insert"));
    let family = &model.details.family;
    let mut info = json!({
        "general.architecture": family,
        "general.basename": model.name,
        "general.parameter_count": model.details.parameters,
        "context_length": model.service.context(),
    });
    info[format!("{family}.context_length")] = model.service.context().into();
    Ok(json(&json!({
        "modelfile": "",
        "parameters": parameters(&frontend),
        "template": model.text.template().unwrap_or_default(),
        "details": details(&frontend, parent),
        "model_info": info,
        "capabilities": capabilities,
        "modified_at": clock::timestamp(frontend.created),
    })))
}

/// How the model's authors want tokens to be chosen, as Ollama writes it: one setting in a line.
fn parameters(frontend: &ModelFrontend) -> String {
    let suggested = frontend.model.text.suggested().named();
    let lines = suggested.iter().map(|(name, value)| {
        let name = if *name == "repetition_penalty" { "repeat_penalty" } else { name };
        format!("{name:<30} {value}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Facts about the model; `parent` is its name where it has adapters.
fn details(frontend: &ModelFrontend, parent: &str) -> Value {
    let details = &frontend.model.details;
    json!({
        "parent_model": parent,
        "format": "gguf",
        "family": details.family,
        "families": [details.family],
        "parameter_size": format!("{:.1}M", details.parameters as f64 / 1e6),
        "quantization_level": details.format,
    })
}
