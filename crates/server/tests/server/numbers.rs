//! Every numeric field of every protocol with values at, inside and outside its range, as the document has it.

use cascadia_server::ServerOptions;
use serde_json::{Value, json};

use crate::harness::Running;

/// Routes, their type, a body that works, and where in it the fields of the type are.
fn requests() -> Vec<(&'static str, &'static str, Value, Option<&'static str>)> {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let chat = json!({"messages": messages, "max_tokens": 1, "logprobs": true});
    let options = json!({"messages": messages, "stream": false, "options": {"num_predict": 1}});
    let responses = json!({"input": "Hi", "max_output_tokens": 1, "include": ["message.output_text.logprobs"]});
    vec![
        ("/v1/chat/completions", "ChatRequest", chat, None),
        ("/v1/completions", "CompletionRequest", json!({"prompt": "Hi", "max_tokens": 1}), None),
        ("/v1/responses", "ResponsesRequest", responses, None),
        ("/v1/messages", "MessagesRequest", json!({"messages": messages, "max_tokens": 1}), None),
        ("/api/chat", "Options", options, Some("options")),
        (
            "/api/generate",
            "Options",
            json!({"prompt": "Hi", "stream": false, "options": {"num_predict": 1}}),
            Some("options"),
        ),
    ]
}

#[test]
fn every_number_has_a_range_and_it_is_kept() {
    // Little room, so that an answer without a limit is short.
    let server = Running::with_context(32, ServerOptions::default());
    let document = server.get("/openapi.json").json();
    let mut tried = 0;
    for (path, name, body, inside) in requests() {
        let fields = document["components"]["schemas"][name]["properties"].as_object().expect(name);
        for (field, schema) in fields.iter().filter(|(_, schema)| is_number(schema)) {
            for (value, status) in cases(path, field, schema) {
                let body = with(&body, inside, field, &value);
                let reply = server.request(&format!("POST {path}"), &[], body.as_bytes());
                assert_eq!(reply.status, status, "{path} {field} = {value}: {}", reply.text());
                if status == 400 && value != "NaN" {
                    assert!(reply.text().contains(field.as_str()), "{path} {field} = {value}: {}", reply.text());
                }
                tried += 1;
            }
        }
    }
    assert!(tried > 400, "{tried} cases");
}

fn is_number(schema: &Value) -> bool {
    let is =
        |kind: &str| schema["type"] == kind || schema["type"].as_array().is_some_and(|all| all.contains(&kind.into()));
    is("number") || is("integer")
}

/// Values as JSON, and the status each must give.
fn cases(path: &str, field: &str, schema: &Value) -> Vec<(String, u16)> {
    let is_whole =
        schema["type"] == "integer" || schema["type"].as_array().is_some_and(|all| all.contains(&"integer".into()));
    let mut cases: Vec<(String, u16)> =
        ["NaN", "\"1\"", "[1]", "{}", "true", "1e400"].map(|wrong| (wrong.to_owned(), 400)).into();
    // `null` is the same as nothing, except on the one route that requires a limit.
    let is_required = (path, field) == ("/v1/messages", "max_tokens");
    cases.push(("null".to_owned(), if is_required { 400 } else { 200 }));
    let (Some(least), Some(most)) = (schema["minimum"].as_f64(), schema["maximum"].as_f64()) else {
        assert!(["seed", "dimensions"].contains(&field), "{field} has no range: {schema}");
        cases.extend(
            [("-1", 200), ("2147483648", 200), ("9223372036854775808", 400), ("1e308", 400)]
                .map(|(v, s)| (v.to_owned(), s)),
        );
        return cases;
    };
    let values = [least - 1.0, least, most, most + 1.0, -1.0, 2_147_483_648.0, 9_223_372_036_854_775_808.0, 1e308];
    for value in values {
        let status = if value >= least && value <= most { 200 } else { 400 };
        let text = if is_whole && value.abs() < 1e19 { format!("{value:.0}") } else { format!("{value:?}") };
        cases.push((text, status));
    }
    if is_whole {
        cases.push(("1.5".to_owned(), 400));
    }
    cases
}

/// The body as text with a field set to any text, JSON or not.
fn with(body: &Value, inside: Option<&str>, field: &str, value: &str) -> String {
    const MARK: &str = "the value goes here";
    let mut body = body.clone();
    match inside {
        Some(name) => body[name][field] = MARK.into(),
        None => body[field] = MARK.into(),
    }
    body.to_string().replace(&format!("\"{MARK}\""), value)
}
