//! `/props` and `/slots`: what the server offers, and how busy it is.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use cascadia_engine::Sampling;
use serde_json::{Value, json};

use crate::app::App;
use crate::protocols::{json, shortest};

/// What the model is, and with which settings it answers where a request says nothing.
pub(crate) async fn props(State(app): State<Arc<App>>) -> Response {
    let frontend = app.model.current();
    let (text, service) = (&frontend.model.text, &frontend.model.service);
    let Sampling { temperature, top_k, top_p, min_p, repetition_penalty, .. } = frontend.defaults(Sampling::default());
    let name = |token: Option<u32>| {
        let bytes = token.and_then(|token| text.tokenizer().token_bytes(token)).unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    };
    let params = json!({
        "temperature": shortest(temperature),
        "top_k": top_k,
        "top_p": shortest(top_p),
        "min_p": shortest(min_p),
        "repeat_penalty": shortest(repetition_penalty),
    });
    json(&json!({
        "default_generation_settings": {"n_ctx": service.context(), "params": params},
        "total_slots": service.parallel(),
        "model_alias": frontend.model.name,
        "chat_template": text.template().unwrap_or_default(),
        "bos_token": name(text.special().bos),
        "eos_token": name(text.special().eos),
        "modalities": {"vision": false, "audio": false},
        "build_info": concat!("cascadia-", env!("CARGO_PKG_VERSION")),
    }))
}

/// A slot for each answer that may be generated at a time, those in use first. Answers have no slot of their own here.
pub(crate) async fn slots(State(app): State<Arc<App>>) -> Response {
    let service = &app.model.current().model.service;
    let running = service.snapshot().running;
    let slot = |id: u64| json!({"id": id, "n_ctx": service.context(), "is_processing": id < running});
    json(&(0..u64::from(service.parallel())).map(slot).collect::<Value>())
}

/// The version of the server, as vLLM's clients ask for it.
pub(crate) async fn version() -> Response {
    json(&json!({"version": env!("CARGO_PKG_VERSION")}))
}
