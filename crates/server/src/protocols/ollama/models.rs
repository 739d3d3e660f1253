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
use crate::model::frontend::{Caller, ModelDetails, ModelFrontend, unix_seconds};
use crate::model::keep_alive::KeepAlive;
use crate::model::on_demand::OfferedModel;
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

/// The models in memory, and until when they stay there if nobody uses them.
pub(crate) async fn running(State(app): State<Arc<App>>) -> Response {
    let shown = |offered| match offered {
        OfferedModel::Stored(..) => None,
        OfferedModel::InMemory(frontend, KeepAlive(left)) => {
            let mut shown = listed(&frontend.model.name, &frontend.model.details);
            let until = left.map_or(FAR_FUTURE, |left| unix_seconds() + left.as_secs());
            shown["expires_at"] = clock::timestamp(until).into();
            shown["size_vram"] = 0.into();
            shown["context_length"] = frontend.model.service.context().into();
            Some(shown)
        }
    };
    json(&json!({"models": app.offered().into_iter().filter_map(shown).collect::<Vec<Value>>()}))
}

/// The models on this machine that are served, alone and with each of the adapters that the caller may use.
pub(crate) async fn tags(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>) -> Response {
    let mut models = Vec::new();
    for offered in app.offered() {
        match offered {
            OfferedModel::Stored(model, since) => models.push(tagged(listed(&model.name, &model.details), since)),
            OfferedModel::InMemory(frontend, _) => {
                let model = &frontend.model;
                models.push(tagged(listed(&model.name, &model.details), frontend.created));
                models.extend(frontend.adapters(&caller).iter().map(|adapter| {
                    let name = frontend.with_adapter(&adapter.name);
                    json!({
                        "name": name,
                        "model": name,
                        "modified_at": clock::timestamp(frontend.created),
                        "size": adapter.bytes,
                        "digest": adapter.id.to_string(),
                        "details": details(&model.details, &model.name),
                    })
                }));
            }
        }
    }
    json(&json!({"models": models}))
}

/// What every list says of a model.
fn listed(name: &str, facts: &ModelDetails) -> Value {
    let name = format!("{name}:latest");
    let (size, digest) = (facts.bytes, &facts.digest);
    json!({"name": name, "model": name, "size": size, "digest": digest, "details": details(facts, "")})
}

/// The same with the time since which it is served.
fn tagged(mut model: Value, since: u64) -> Value {
    model["modified_at"] = clock::timestamp(since).into();
    model
}

/// Details of the model.
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let (frontend, adapter) = read_body(&app, request, move |bytes, frontend| {
        let body: ShowRequest = parse(bytes)?;
        let adapter = frontend.select(body.model.as_deref(), &caller)?;
        Ok((frontend, adapter))
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
        "details": details(&model.details, parent),
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
fn details(details: &ModelDetails, parent: &str) -> Value {
    json!({
        "parent_model": parent,
        "format": "gguf",
        "family": details.family,
        "families": [details.family],
        "parameter_size": format!("{:.1}M", details.parameters as f64 / 1e6),
        "quantization_level": details.format,
    })
}
