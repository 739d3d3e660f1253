//! `/openapi.json`: the table of routes with the types of their bodies.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::body::Bytes;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::routes::{Access, ROUTES, Route};

/// Written once: however many clients do not read it, it is in memory once.
static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| describe().to_string().into());

/// The document.
pub(crate) async fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.clone()).into_response()
}

fn describe() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let methods = paths.entry(route.path).or_insert_with(|| json!({}));
        methods[route.method.to_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "cascadia",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Fields that are not listed are ignored.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    })
}

fn operation(route: &Route) -> Value {
    let mut operation = json!({
        "summary": route.summary,
        "security": match route.access {
            Access::Keyed => json!([{"key": []}]),
            Access::Open => json!([]),
        },
        "parameters": parameters(route.path),
        "responses": responses(route),
    });
    if let Some(body) = route.body {
        let schema = json!({"$ref": format!("#/components/schemas/{}", (body.name)())});
        operation["requestBody"] = json!({"required": true, "content": {"application/json": {"schema": schema}}});
    }
    operation
}

/// The types of all bodies, and those they refer to.
fn schemas() -> Value {
    let mut schemas = Vec::new();
    for body in ROUTES.iter().filter_map(|route| route.body) {
        (body.add_schemas)(&mut schemas);
    }
    serde_json::to_value(schemas.into_iter().collect::<BTreeMap<_, _>>()).unwrap_or_default()
}

/// Parts of the path in braces.
fn parameters(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names.map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}})).collect()
}

fn responses(route: &Route) -> Value {
    let mut responses = json!({
        "200": {"description": "The answer."},
        "401": {"description": "No key, or an unknown one."},
        "403": {"description": "A host, an origin or a key that may not do this."},
    });
    let more = [
        ("400", "The body is invalid; the message names the field."),
        ("404", "There is no such model or adapter."),
        ("408", "The body did not arrive in time."),
        ("413", "The body is too large."),
        ("429", "Too many requests; see Retry-After."),
        ("503", "The server is shutting down."),
    ];
    for (status, description) in more.into_iter().filter(|(status, _)| route.body.is_some() || *status == "404") {
        responses[status] = json!({"description": description});
    }
    responses
}
