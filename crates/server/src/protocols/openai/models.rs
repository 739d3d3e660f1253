//! `/v1/models`.

use std::sync::Arc;

use axum::extract::{Extension, Path, State};
use axum::response::Response;
use cascadia_engine::AdapterStatus;
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::error::ApiError;
use crate::model::frontend::{Caller, ModelFrontend};
use crate::model::on_demand::{OfferedModel, OnDemandModel};
use crate::protocols::{json, shortest};

/// The models that are served, alone and with each of the adapters that the caller may use.
pub(crate) async fn list(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>) -> Response {
    let mut data = Vec::new();
    for offered in app.offered() {
        match offered {
            OfferedModel::Stored(model, since) => data.push(stored(model, since)),
            OfferedModel::InMemory(frontend, _) => {
                data.push(model(&frontend));
                data.extend(frontend.adapters(&caller).iter().map(|adapter| adapted(&frontend, adapter)));
            }
        }
    }
    json(&json!({"object": "list", "data": data}))
}

/// One model.
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let frontend = match &app.on_demand {
        None => app.model.current(),
        Some(models) => match models.all().swap_remove(models.find(Some(&id))?) {
            OfferedModel::Stored(model, since) => return Ok(json(&stored(model, since))),
            OfferedModel::InMemory(frontend, _) => frontend,
        },
    };
    let Some(handle) = frontend.select(Some(&id), &caller)? else { return Ok(json(&model(&frontend))) };
    let known = frontend.adapters(&caller).into_iter().find(|adapter| adapter.name == handle.name());
    Ok(json(&match known {
        Some(adapter) => adapted(&frontend, &adapter),
        // Several adapters together are not listed.
        None => child(&frontend, &frontend.answering(Some(&id)), None),
    }))
}

/// How the model's authors want tokens to be chosen, as far as its files say.
pub(crate) fn suggested(frontend: &ModelFrontend) -> Value {
    let named = frontend.model.text.suggested().named();
    named.into_iter().map(|(name, value)| (name.to_owned(), shortest(value).into())).collect::<Map<_, Value>>().into()
}

fn model(frontend: &ModelFrontend) -> Value {
    json!({
        "id": frontend.model.name,
        "object": "model",
        "created": frontend.created,
        "owned_by": "cascadia",
        "root": frontend.model.name,
        "parent": null,
        "loaded": true,
        "context_length": frontend.model.service.context(),
        // The same under vLLM's name.
        "max_model_len": frontend.model.service.context(),
        "default_sampling": suggested(frontend),
    })
}

/// A model that is not in memory.
fn stored(model: &OnDemandModel, since: u64) -> Value {
    json!({
        "id": model.name,
        "object": "model",
        "created": since,
        "owned_by": "cascadia",
        "root": model.name,
        "parent": null,
        "loaded": false,
    })
}

/// The model with an adapter.
fn adapted(frontend: &ModelFrontend, adapter: &AdapterStatus) -> Value {
    let path = frontend.model.adapters.as_ref().map(|adapters| adapters.path_inside(adapter));
    child(frontend, &frontend.with_adapter(&adapter.name), path)
}

/// The model under another name, as vLLM shows it: `root` is where the adapter lies.
fn child(frontend: &ModelFrontend, id: &str, root: Option<String>) -> Value {
    let mut object = model(frontend);
    object["id"] = id.into();
    object["root"] = root.into();
    object["parent"] = frontend.model.name.as_str().into();
    object
}
