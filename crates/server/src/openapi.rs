//! `/openapi.json`: the table of routes with the types of their bodies.

use axum::response::Response;
use serde_json::{Map, Value, json};
use utoipa::OpenApi;

use crate::protocol;
use crate::routes::{Access, ROUTES};
use crate::{anthropic, ollama, openai};

/// The types of all bodies.
#[derive(OpenApi)]
#[openapi(components(schemas(
    openai::chat::ChatRequest,
    openai::chat::StreamOptions,
    openai::completions::CompletionRequest,
    openai::embeddings::EmbeddingRequest,
    openai::message::Message,
    openai::responses::ResponsesRequest,
    openai::tokens::TokenizeRequest,
    openai::tokens::DetokenizeRequest,
    anthropic::blocks::BlockMessage,
    anthropic::blocks::BlockTool,
    anthropic::messages::MessagesRequest,
    ollama::chat::OllamaChatRequest,
    ollama::generate::GenerateRequest,
    ollama::models::ShowRequest,
    ollama::options::Options,
)))]
struct Bodies;

/// The document.
pub(crate) async fn document() -> Response {
    protocol::json(&describe())
}

fn describe() -> Value {
    let types = serde_json::to_value(Bodies::openapi()).unwrap_or_default();
    let paths = ROUTES.iter().map(|route| {
        let operation = json!({
            "summary": route.summary,
            "security": match route.access {
                Access::Keyed => json!([{"key": []}]),
                Access::Open => json!([]),
            },
            "parameters": parameters(route.path),
            "responses": responses(route.body),
        });
        let mut operation = operation;
        if let Some(body) = route.body {
            let schema = json!({"$ref": format!("#/components/schemas/{body}")});
            operation["requestBody"] = json!({"required": true, "content": {"application/json": {"schema": schema}}});
        }
        (route.path.to_owned(), json!({route.method.to_lowercase(): operation}))
    });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "cascadia",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Fields that are not listed are ignored.",
        },
        "paths": paths.collect::<Map<String, Value>>(),
        "components": {
            "schemas": types["components"]["schemas"],
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    })
}

/// Parts of the path in braces.
fn parameters(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names.map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}})).collect()
}

fn responses(body: Option<&str>) -> Value {
    let mut responses = json!({
        "200": {"description": "The answer."},
        "401": {"description": "No key, or an unknown one."},
        "403": {"description": "A host or origin that may not use this server."},
    });
    let more = [
        ("400", "The body is wrong; the message names the field."),
        ("404", "There is no such model."),
        ("408", "The body came too slowly."),
        ("413", "The body is too large."),
        ("429", "Too many requests; see Retry-After."),
        ("503", "The server is ending."),
    ];
    for (status, description) in more.into_iter().filter(|(status, _)| body.is_some() || *status == "404") {
        responses[status] = json!({"description": description});
    }
    responses
}
