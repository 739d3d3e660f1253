//! Every route of the server with its handler: the router, the access rules and `/openapi.json` follow this table.
//!
//! A new endpoint is a file with its handler and one row here.

use std::borrow::Cow;
use std::sync::Arc;

use axum::Router;
use axum::http::Method;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, delete, get, post};
use utoipa::ToSchema;
use utoipa::openapi::{RefOr, Schema};

use crate::app::App;
use crate::error::{ApiError, ErrorKind};
use crate::http::guard::guard;
use crate::observe::{health, kv, recent, status};
use crate::protocols::anthropic::messages::{self, MessagesProtocol, MessagesRequest};
use crate::protocols::ggml::infill::InfillProtocol;
use crate::protocols::ggml::props;
use crate::protocols::ggml::template::{self, TemplateRequest};
use crate::protocols::ollama::chat::OllamaChatProtocol;
use crate::protocols::ollama::embed::{EmbedRequest, EmbeddingsRequest};
use crate::protocols::ollama::generate::GenerateProtocol;
use crate::protocols::ollama::models::ShowRequest;
use crate::protocols::openai::adapters::{self, AdapterRequest, LoadLoraRequest, UnloadLoraRequest};
use crate::protocols::openai::chat::ChatProtocol;
use crate::protocols::openai::completions::CompletionProtocol;
use crate::protocols::openai::embeddings::{self, EmbeddingRequest};
use crate::protocols::openai::models;
use crate::protocols::openai::rerank::{self, RerankRequest};
use crate::protocols::openai::responses::{self, ResponsesProtocol};
use crate::protocols::openai::tokens::{self, DetokenizeRequest, TokenizeRequest};
use crate::protocols::{Protocol, generate, ollama};
use crate::request::sampling::WithSampling;
use crate::{openapi, page};

/// Every route. What is not listed does not exist, and what is not open needs a key.
pub const ROUTES: &[Route] = &[
    Route::generate::<ChatProtocol>("/v1/chat/completions", "Answers a conversation, as OpenAI's clients ask."),
    Route::generate::<CompletionProtocol>("/v1/completions", "Continues a text."),
    Route::generate::<ResponsesProtocol>("/v1/responses", "Responds to a text or a conversation."),
    Route::get("/v1/responses/{id}", "Shows a response that is kept.", || get(responses::show)),
    Route::delete("/v1/responses/{id}", "Forgets a response.", || delete(responses::remove)),
    Route::post::<EmbeddingRequest>("/v1/embeddings", "Computes embeddings of texts.", || post(embeddings::embed)),
    Route::post::<RerankRequest>("/v1/rerank", "Ranks documents by how well they answer a query.", || {
        post(rerank::rerank)
    }),
    Route::get("/v1/models", "Lists the model, alone and with its adapters.", || get(models::list)),
    Route::get("/v1/models/{id}", "Shows a model.", || get(models::one)),
    Route::generate::<MessagesProtocol>("/v1/messages", "Answers a conversation, as Anthropic's clients ask."),
    Route::post::<WithSampling<MessagesRequest>>(
        "/v1/messages/count_tokens",
        "Counts the tokens of a conversation.",
        || post(messages::count),
    ),
    Route::generate::<OllamaChatProtocol>("/api/chat", "Answers a conversation, as Ollama's clients ask."),
    Route::generate::<GenerateProtocol>("/api/generate", "Answers a prompt."),
    Route::post::<EmbedRequest>("/api/embed", "Computes embeddings of texts.", || post(ollama::embed::embed)),
    Route::post::<EmbeddingsRequest>("/api/embeddings", "Computes the embedding of a text.", || {
        post(ollama::embed::embeddings)
    }),
    Route::post::<ShowRequest>("/api/show", "Shows the model.", || post(ollama::models::show)),
    Route::get("/api/tags", "Lists the model, alone and with its adapters.", || get(ollama::models::tags)),
    Route::get("/api/ps", "Lists the models in memory.", || get(ollama::models::running)),
    Route::get("/api/version", "Shows the version.", || get(ollama::models::version)),
    Route::post::<TokenizeRequest>("/tokenize", "Tokenizes a text or a conversation.", || post(tokens::tokenize)),
    Route::post::<DetokenizeRequest>("/detokenize", "Turns tokens into text.", || post(tokens::detokenize)),
    Route::post::<TemplateRequest>("/apply-template", "Writes a conversation as text.", || post(template::apply)),
    Route::generate::<InfillProtocol>("/infill", "Fills the gap in a text."),
    Route::get("/props", "Shows the model and its usual settings.", || get(props::props)),
    Route::get("/slots", "Shows how many answers are generated at a time.", || get(props::slots)),
    Route::get("/version", "Shows the version.", || get(props::version)),
    Route::get("/v1/adapters", "Lists adapters.", || get(adapters::list)),
    Route::post::<AdapterRequest>("/v1/adapters", "Adds an adapter, or replaces one.", || post(adapters::add)),
    Route::delete("/v1/adapters/{name}", "Removes an adapter.", || delete(adapters::remove)),
    Route::post::<LoadLoraRequest>("/v1/load_lora_adapter", "Adds an adapter, as vLLM's clients ask.", || {
        post(adapters::load)
    }),
    Route::post::<UnloadLoraRequest>("/v1/unload_lora_adapter", "Removes an adapter, as vLLM's clients ask.", || {
        post(adapters::unload)
    }),
    Route::get("/health", "A short summary of the server's state.", || get(health::health)),
    Route::get("/readyz", "Whether the next request would be accepted.", || get(health::ready)),
    Route::get("/metrics", "Metrics for Prometheus.", || get(status::metrics)),
    Route::get("/status", "The same metrics as JSON, with percentiles, and the machines of a fleet.", || {
        get(status::status)
    }),
    Route::get("/status/recent", "A few numbers of it in the last five minutes, second by second.", || {
        get(recent::show)
    }),
    Route::get("/debug/kv", "How the KV cache is stored, who holds it, and what happened to it lately.", || {
        get(kv::show)
    }),
    Route::get("/openapi.json", "This document.", || get(openapi::document)),
    // The same answer whatever the server does, for a supervisor that restarts it.
    Route::get("/livez", "Whether the process is alive.", || get(health::live)).open(),
    // The page has to load before it can ask for a key. Its files are the same on every server and hold no data.
    Route::get("/", "The web page.", || get(page::file)).open(),
    Route::get("/page/{*file}", "A file of the web page.", || get(page::file)).open(),
];

/// Who may use a route when keys are configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everybody: it reveals nothing about the model or its users.
    Open,
    /// Those with a key.
    Keyed,
}

/// A route.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// `GET`, `POST` or `DELETE`.
    pub method: &'static str,
    /// The path, with names in braces for parts that vary.
    pub path: &'static str,
    /// Who may use it.
    pub access: Access,
    /// What it does.
    pub summary: &'static str,
    /// What a request carries; routes with a body are those that ask for work.
    pub body: Option<BodyType>,
    handler: Handler,
}

/// The type of a request's body.
#[derive(Clone, Copy, Debug)]
pub struct BodyType {
    /// Its name in `/openapi.json`.
    pub(crate) name: fn() -> Cow<'static, str>,
    /// Adds its schema, and those it refers to.
    pub(crate) add_schemas: fn(&mut Vec<(String, RefOr<Schema>)>),
}

impl BodyType {
    const fn of<T: ToSchema>() -> BodyType {
        BodyType {
            name: T::name,
            add_schemas: |schemas| {
                schemas.push((T::name().into_owned(), T::schema()));
                T::schemas(schemas);
            },
        }
    }
}

type Handler = fn() -> MethodRouter<Arc<App>>;

impl Route {
    const fn get(path: &'static str, summary: &'static str, handler: Handler) -> Route {
        Route { method: "GET", path, access: Access::Keyed, summary, body: None, handler }
    }

    const fn delete(path: &'static str, summary: &'static str, handler: Handler) -> Route {
        Route { method: "DELETE", ..Route::get(path, summary, handler) }
    }

    const fn post<Body: ToSchema>(path: &'static str, summary: &'static str, handler: Handler) -> Route {
        let body = Some(BodyType::of::<Body>());
        Route { method: "POST", path, access: Access::Keyed, summary, body, handler }
    }

    /// A route on which a protocol asks for generated text.
    const fn generate<P: Protocol>(path: &'static str, summary: &'static str) -> Route {
        Route::post::<P::Body>(path, summary, || post(generate::<P>))
    }

    const fn open(self) -> Route {
        Route { access: Access::Open, ..self }
    }
}

/// Whether a path may be used without a key.
pub(crate) fn is_open(path: &str) -> bool {
    page::has(path) || ROUTES.iter().any(|route| route.access == Access::Open && route.path == path)
}

/// Whether requests to a path carry a body, which are those that ask for work.
pub(crate) fn takes_body(method: &Method, path: &str) -> bool {
    ROUTES.iter().any(|route| route.body.is_some() && route.method == method.as_str() && route.path == path)
}

/// All routes behind the guard.
pub(crate) fn router(app: Arc<App>) -> Router {
    let mut router = Router::new();
    for (position, route) in ROUTES.iter().enumerate() {
        // All methods of a path are added with the first of them.
        if ROUTES[..position].iter().any(|earlier| earlier.path == route.path) {
            continue;
        }
        let others = ROUTES[position + 1..].iter().filter(|other| other.path == route.path);
        let methods = others.fold((route.handler)(), |methods, other| methods.merge((other.handler)()));
        router = router.route(route.path, methods.fallback(wrong_method));
    }
    router.fallback(no_route).layer(from_fn_with_state(Arc::clone(&app), guard)).with_state(app)
}

pub(crate) async fn no_route() -> ApiError {
    ApiError::new(ErrorKind::NoRoute, "there is no such route; see /openapi.json")
}

async fn wrong_method() -> ApiError {
    ApiError::new(ErrorKind::Method, "this route does not support that method; see /openapi.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_names_every_route() {
        let document = include_str!("../../../docs/serving.md");
        // The page is documented as a whole.
        for route in ROUTES.iter().filter(|route| !route.path.starts_with("/page/")) {
            let path = route.path.split("/{").next().unwrap_or_default();
            assert!(document.contains(&format!("`{path}`")), "docs/serving.md does not mention {path}");
        }
    }
}
