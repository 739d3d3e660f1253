//! Every route of the server, as data: what is not in this table does not exist, and what is not open needs a key.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, get, post};

use crate::anthropic::messages::{self, MessagesProtocol};
use crate::app::App;
use crate::error::{ApiError, Kind};
use crate::guard::guard;
use crate::ollama::chat::OllamaChatProtocol;
use crate::ollama::generate::GenerateProtocol;
use crate::openai::chat::ChatProtocol;
use crate::openai::completions::CompletionProtocol;
use crate::openai::responses::ResponsesProtocol;
use crate::openai::{embeddings, models, tokens};
use crate::protocol::answer;
use crate::{ollama, openapi, operations, page, status};

/// Who may use a route when keys are configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everybody: it tells nothing about the model or its users.
    Open,
    /// Those with a key.
    Keyed,
}

/// A route.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// `GET` or `POST`.
    pub method: &'static str,
    /// The path, with names in braces for parts that vary.
    pub path: &'static str,
    /// Who may use it.
    pub access: Access,
    /// The type of its body.
    pub body: Option<&'static str>,
    /// What it does.
    pub summary: &'static str,
}

const fn asks(path: &'static str, body: &'static str, summary: &'static str) -> Route {
    Route { method: "POST", path, access: Access::Keyed, body: Some(body), summary }
}

const fn tells(path: &'static str, summary: &'static str) -> Route {
    Route { method: "GET", path, access: Access::Keyed, body: None, summary }
}

const fn open(path: &'static str, summary: &'static str) -> Route {
    Route { access: Access::Open, ..tells(path, summary) }
}

/// Every route.
pub const ROUTES: &[Route] = &[
    asks("/v1/chat/completions", "ChatRequest", "Answers a conversation, as OpenAI's clients ask."),
    asks("/v1/completions", "CompletionRequest", "Continues a text."),
    asks("/v1/responses", "ResponsesRequest", "Responds to a text or a conversation."),
    asks("/v1/embeddings", "EmbeddingRequest", "ConnectionSlots texts in the model's space."),
    tells("/v1/models", "Lists the model."),
    tells("/v1/models/{id}", "Shows the model."),
    asks("/v1/messages", "MessagesRequest", "Answers a conversation, as Anthropic's clients ask."),
    asks("/v1/messages/count_tokens", "MessagesRequest", "Counts the tokens of a conversation."),
    asks("/api/chat", "OllamaChatRequest", "Answers a conversation, as Ollama's clients ask."),
    asks("/api/generate", "GenerateRequest", "Answers a prompt."),
    asks("/api/show", "ShowRequest", "Shows the model."),
    tells("/api/tags", "Lists the model."),
    tells("/api/version", "Tells the version."),
    asks("/tokenize", "TokenizeRequest", "Tokens of a text or a conversation."),
    asks("/detokenize", "DetokenizeRequest", "Text of tokens."),
    tells("/health", "How the server is, in short."),
    tells("/readyz", "Whether the next request would be taken."),
    tells("/metrics", "Numbers for Prometheus."),
    tells("/status", "The same numbers as JSON, with percentiles, and how the machines of a fleet are."),
    tells("/openapi.json", "This document."),
    // The same answer whatever the server does, for whoever starts it again when it is gone.
    open("/livez", "Whether the process answers."),
    // The page has to load before it can ask for a key. Its files are the same on every server and hold no data.
    open("/", "The web page."),
    open("/page/{file}", "A file of the web page."),
];

/// Whether a path may be used without a key.
pub(crate) fn is_open(path: &str) -> bool {
    page::has(path) || ROUTES.iter().any(|route| route.access == Access::Open && route.path == path)
}

/// Whether a path is one that work is asked of.
pub(crate) fn is_asked(path: &str) -> bool {
    ROUTES.iter().any(|route| route.body.is_some() && route.path == path)
}

/// All routes behind the guard.
pub(crate) fn router(app: Arc<App>) -> Router {
    let mut router = Router::new();
    for route in ROUTES {
        router = router.route(route.path, handler(route.path).fallback(wrong_method));
    }
    router.fallback(no_route).layer(from_fn_with_state(Arc::clone(&app), guard)).with_state(app)
}

fn handler(path: &str) -> MethodRouter<Arc<App>> {
    match path {
        "/v1/chat/completions" => post(answer::<ChatProtocol>),
        "/v1/completions" => post(answer::<CompletionProtocol>),
        "/v1/responses" => post(answer::<ResponsesProtocol>),
        "/v1/embeddings" => post(embeddings::embed),
        "/v1/models" => get(models::list),
        "/v1/models/{id}" => get(models::one),
        "/v1/messages" => post(answer::<MessagesProtocol>),
        "/v1/messages/count_tokens" => post(messages::count),
        "/api/chat" => post(answer::<OllamaChatProtocol>),
        "/api/generate" => post(answer::<GenerateProtocol>),
        "/api/show" => post(ollama::models::show),
        "/api/tags" => get(ollama::models::tags),
        "/api/version" => get(ollama::models::version),
        "/tokenize" => post(tokens::tokenize),
        "/detokenize" => post(tokens::detokenize),
        "/health" => get(operations::health),
        "/readyz" => get(operations::ready),
        "/metrics" => get(status::metrics),
        "/status" => get(status::status),
        "/openapi.json" => get(openapi::document),
        "/livez" => get(operations::live),
        "/" | "/page/{file}" => get(page::file),
        // A line of the table without one here; the test that visits all routes finds it.
        _ => MethodRouter::new(),
    }
}

pub(crate) async fn no_route() -> ApiError {
    ApiError::new(Kind::NoRoute, "there is no such route; /openapi.json lists all")
}

async fn wrong_method() -> ApiError {
    ApiError::new(Kind::Method, "this route has another method; /openapi.json lists all")
}
