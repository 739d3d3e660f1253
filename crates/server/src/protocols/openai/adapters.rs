//! `/v1/adapters`, and the routes of vLLM that do the same.

use std::sync::Arc;

use axum::extract::{Extension, Path, Request, State};
use axum::response::{IntoResponse, Response};
use cascadia_engine::AdapterStatus;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::app::App;
use crate::error::{ApiError, ErrorKind};
use crate::model::frontend::{Caller, ModelFrontend};
use crate::protocols::{json, parse, read_body};
use crate::request::validate::{Given, shortened};

/// An adapter to be added; one with the same name is replaced.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct AdapterRequest {
    /// What requests will name after the model: 1 to 64 letters, digits, `.`, `_` and `-`.
    name: String,
    /// Its folder or file, relative to the server's folder of adapters; its name by default.
    path: Option<String>,
}

/// An adapter to be added, as vLLM has it.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct LoadLoraRequest {
    /// What requests will name after the model.
    lora_name: String,
    /// Its folder or file, inside the server's folder of adapters.
    lora_path: String,
}

/// An adapter to be removed, as vLLM has it.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct UnloadLoraRequest {
    /// Its name.
    lora_name: String,
}

/// The adapters that the caller may use.
pub(crate) async fn list(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>) -> Response {
    let frontend = app.model.current();
    let adapters = frontend.adapters(&caller);
    let data: Vec<Value> = adapters.iter().map(|adapter| object(&frontend, adapter)).collect();
    json(&json!({"object": "list", "data": data}))
}

/// Adds an adapter. Requests that run with one of the same name keep it; those that come later get the new one.
pub(crate) async fn add(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    check_may_change(&app, &caller)?;
    read_body(&app, request, move |bytes, frontend| {
        let AdapterRequest { name, path } = parse(bytes)?;
        let name = Given { name: "name", value: name.as_str() };
        let added = add_to(&frontend, name, Given { name: "path", value: path.as_deref() })?;
        Ok(json(&object(&frontend, &added)))
    })
    .await
}

/// Removes an adapter. Requests that run with it keep it.
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    check_may_change(&app, &caller)?;
    remove_from(&app.model.current(), Given { name: "name", value: name.as_str() })?;
    Ok(json(&json!({"object": "adapter", "name": name, "deleted": true})))
}

/// Adds an adapter for clients of vLLM.
pub(crate) async fn load(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    check_may_change(&app, &caller)?;
    let name = read_body(&app, request, move |bytes, frontend| {
        let LoadLoraRequest { lora_name, lora_path } = parse(bytes)?;
        let name = Given { name: "lora_name", value: lora_name.as_str() };
        add_to(&frontend, name, Given { name: "lora_path", value: Some(lora_path.as_str()) })?;
        Ok(lora_name)
    })
    .await?;
    Ok(format!("Success: LoRA adapter '{name}' added successfully.").into_response())
}

/// Removes an adapter for clients of vLLM.
pub(crate) async fn unload(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    check_may_change(&app, &caller)?;
    let name = read_body(&app, request, move |bytes, frontend| {
        let UnloadLoraRequest { lora_name } = parse(bytes)?;
        remove_from(&frontend, Given { name: "lora_name", value: lora_name.as_str() })?;
        Ok(lora_name)
    })
    .await?;
    Ok(format!("Success: LoRA adapter '{name}' removed successfully.").into_response())
}

/// An error unless the caller may change the model's adapters.
fn check_may_change(app: &App, caller: &Caller) -> Result<(), ApiError> {
    match (caller.is_admin, app.keys.is_some()) {
        (true, _) => Ok(()),
        (false, true) => {
            let message = "this key may not change adapters; use one that was made with `cascadia keys new --admin`";
            Err(ApiError::new(ErrorKind::Forbidden, message))
        }
        (false, false) => {
            let message = "without keys, adapters can only be changed on a server that no other machine reaches; start \
                           it with --keys";
            Err(ApiError::new(ErrorKind::Forbidden, message))
        }
    }
}

fn add_to(frontend: &ModelFrontend, name: Given<&str>, path: Given<Option<&str>>) -> Result<AdapterStatus, ApiError> {
    match &frontend.model.adapters {
        Some(adapters) => adapters.add(name, path),
        None => {
            let message = "this server has no folder of adapters; start it with --adapters DIR";
            Err(ApiError::unsupported(name.name, message))
        }
    }
}

fn remove_from(frontend: &ModelFrontend, name: Given<&str>) -> Result<(), ApiError> {
    match frontend.model.adapters.as_ref().is_some_and(|adapters| adapters.remove(name.value)) {
        true => Ok(()),
        false => {
            let message = format!("there is no adapter `{}`; see /v1/adapters", shortened(name.value));
            Err(ApiError { param: Some(name.name.to_owned()), ..ApiError::new(ErrorKind::NoModel, message) })
        }
    }
}

fn object(frontend: &ModelFrontend, adapter: &AdapterStatus) -> Value {
    json!({
        "object": "adapter",
        "name": adapter.name,
        "model": frontend.with_adapter(&adapter.name),
        "id": adapter.id.to_string(),
        "kind": adapter.kind,
        "rank": adapter.rank,
        "path": frontend.model.adapters.as_ref().map(|adapters| adapters.path_inside(adapter)),
        "bytes": adapter.bytes,
        "in_memory": adapter.in_memory,
        "pinned": adapter.pinned,
        "requests": adapter.requests,
    })
}
