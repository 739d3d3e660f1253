//! Every protocol answers as its clients expect.

use base64::prelude::{BASE64_STANDARD, Engine};
use cascadia_server::{FleetBoard, ServerOptions};
use serde_json::{Value, json};

use crate::harness::{CONTEXT, MODEL, Running};

fn hello() -> Value {
    json!([{"role": "user", "content": "Hello"}])
}

#[test]
fn a_conversation_is_answered() {
    let server = Running::shared();
    let body = json!({"model": MODEL, "messages": hello(), "max_tokens": 8, "seed": 7, "user": "anna"});
    let reply = server.post("/v1/chat/completions", &body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let object = reply.json();
    assert_eq!(object["object"], "chat.completion");
    assert_eq!(object["choices"][0]["message"]["role"], "assistant");
    assert_eq!(object["choices"][0]["finish_reason"], "length");
    assert_eq!(object["usage"]["completion_tokens"], 8);
    let again = server.post("/v1/chat/completions", &body).json();
    assert_eq!(object["choices"], again["choices"], "same seed, same answer");
    let two = json!({"messages": hello(), "max_tokens": 8, "seed": 7, "n": 2, "model": "default"});
    let two = server.post("/v1/chat/completions", &two).json();
    assert_eq!(two["choices"][0]["message"], object["choices"][0]["message"]);
    assert_ne!(two["choices"][1]["message"], two["choices"][0]["message"]);
    assert_eq!(two["usage"]["prompt_tokens"], object["usage"]["prompt_tokens"], "one prompt");
    assert_eq!(two["usage"]["completion_tokens"], 16);
}

#[test]
fn a_stream_has_the_same_text() {
    let server = Running::shared();
    let mut body = json!({"messages": hello(), "max_tokens": 12, "seed": 3});
    let whole = server.post("/v1/chat/completions", &body).json();
    body["stream"] = true.into();
    body["stream_options"] = json!({"include_usage": true});
    let reply = server.post("/v1/chat/completions", &body);
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    assert!(reply.text().starts_with("id: ") && reply.text().contains("-0\n"), "{}", reply.text());
    let mut events = reply.events();
    assert_eq!(events.pop().as_deref(), Some("[DONE]"));
    let events: Vec<Value> = events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let text: String = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, whole["choices"][0]["message"]["content"]);
    let last = events.last().unwrap();
    assert_eq!((&last["usage"], &last["choices"]), (&whole["usage"], &json!([])));
    assert_eq!(events[events.len() - 2]["choices"][0]["finish_reason"], "length");
}

#[test]
fn texts_are_continued() {
    let server = Running::shared();
    let reply = server.post("/v1/completions", &json!({"prompt": ["One", "Two"], "max_tokens": 4, "temperature": 0}));
    assert_eq!(reply.status, 200, "{}", reply.text());
    let object = reply.json();
    assert_eq!(object["choices"].as_array().unwrap().len(), 2);
    assert_eq!(object["usage"]["completion_tokens"], 8);
    let tokens = server.post("/tokenize", &json!({"prompt": "One"})).json();
    let by_tokens = json!({"prompt": tokens["tokens"], "max_tokens": 4, "temperature": 0, "stream": true});
    let events = server.post("/v1/completions", &by_tokens).events();
    let texts = events.iter().filter_map(|event| serde_json::from_str::<Value>(event).ok());
    let text: String = texts.filter_map(|event| event["choices"][0]["text"].as_str().map(str::to_owned)).collect();
    assert_eq!(text, object["choices"][0]["text"]);
}

#[test]
fn logprobs_are_reported() {
    let server = Running::shared();
    let mut body = json!({"messages": hello(), "max_tokens": 4, "temperature": 0, "logprobs": true, "top_logprobs": 3});
    let object = server.post("/v1/chat/completions", &body).json();
    let content = object["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(content.len(), 4, "{object}");
    for entry in content {
        let top = entry["top_logprobs"].as_array().unwrap();
        assert_eq!((top.len(), &top[0]["token"]), (3, &entry["token"]), "the most likely token is taken");
        assert!(entry["logprob"].as_f64().unwrap() <= 0.0 && top[0]["logprob"].as_f64() >= top[2]["logprob"].as_f64());
    }
    body["stream"] = true.into();
    let events = server.post("/v1/chat/completions", &body).events();
    let events = events.iter().filter_map(|event| event.parse::<Value>().ok());
    let streamed: Vec<Value> = events
        .flat_map(|event| event["choices"][0]["logprobs"]["content"].as_array().cloned().unwrap_or_default())
        .collect();
    assert_eq!(streamed, *content);
    let body = json!({"prompt": "Once", "max_tokens": 3, "temperature": 0, "logprobs": 2});
    let object = server.post("/v1/completions", &body).json();
    let logprobs = &object["choices"][0]["logprobs"];
    let tokens: String = logprobs["tokens"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(object["choices"][0]["text"], tokens);
    assert_eq!(logprobs["text_offset"][0], 0);
}

#[test]
fn embeddings_are_computed() {
    let server = Running::shared();
    let reply = server.post("/v1/embeddings", &json!({"input": ["harbour", "harbour", "parliament"]}));
    assert_eq!(reply.status, 200, "{}", reply.text());
    let object = reply.json();
    let vector = |index: usize| -> Vec<f64> {
        object["data"][index]["embedding"].as_array().unwrap().iter().filter_map(Value::as_f64).collect()
    };
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    assert_eq!(vector(0), vector(1));
    assert!((product(&vector(0), &vector(0)) - 1.0).abs() < 1e-3);
    assert!(product(&vector(0), &vector(2)) < 0.9999);
    let encoded = server.post("/v1/embeddings", &json!({"input": "harbour", "encoding_format": "base64"})).json();
    let bytes = BASE64_STANDARD.decode(encoded["data"][0]["embedding"].as_str().unwrap()).expect("padded base64");
    let numbers = bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
    assert!(numbers.eq(vector(0).iter().map(|x| *x as f32)));
    let dimensions = [0, 1 << 20].map(|dimensions| json!({"input": "a", "dimensions": dimensions}));
    for wrong in [json!({}), json!({"input": []}), json!({"input": [-1]})].iter().chain(&dimensions) {
        assert_eq!(server.post("/v1/embeddings", wrong).status, 400, "{wrong}");
    }
}

#[test]
fn tokenizing_and_detokenizing_are_inverse() {
    let server = Running::shared();
    let found = server.post("/tokenize", &json!({"prompt": "Harbour at night"})).json();
    assert_eq!(found["count"], found["tokens"].as_array().unwrap().len());
    assert_eq!(found["max_model_len"], CONTEXT);
    let text = server.post("/detokenize", &json!({"tokens": found["tokens"]})).json();
    assert!(text["prompt"].as_str().unwrap().ends_with("Harbour at night"), "{text}");
    let chat = server.post("/tokenize", &json!({"messages": hello()})).json();
    assert!(chat["count"].as_u64().unwrap() > 2, "{chat}");
}

#[test]
fn responses_are_generated() {
    let server = Running::shared();
    let mut body = json!({"model": MODEL, "input": "Hello", "instructions": "Be brief.", "max_output_tokens": 8});
    body["temperature"] = 0.into();
    let reply = server.post("/v1/responses", &body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let object = reply.json();
    assert_eq!((&object["object"], &object["status"]), (&json!("response"), &json!("incomplete")));
    let text = &object["output"][0]["content"][0]["text"];
    body["stream"] = true.into();
    let events: Vec<Value> = server.post("/v1/responses", &body).events().iter().map(|e| e.parse().unwrap()).collect();
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(
        kinds[..4],
        ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"]
    );
    assert_eq!(*kinds.last().unwrap(), "response.incomplete");
    let deltas: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(*text, deltas);
    assert!(events.iter().enumerate().all(|(number, event)| event["sequence_number"] == number));
}

#[test]
fn messages_are_answered() {
    let server = Running::shared();
    let mut body =
        json!({"model": MODEL, "system": "Be brief.", "messages": hello(), "max_tokens": 8, "temperature": 0});
    let reply = server.post("/v1/messages", &body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let object = reply.json();
    assert_eq!((&object["type"], &object["stop_reason"]), (&json!("message"), &json!("max_tokens")));
    let count = server.post("/v1/messages/count_tokens", &body).json();
    let usage = &object["usage"];
    let read = usage["input_tokens"].as_u64().unwrap() + usage["cache_read_input_tokens"].as_u64().unwrap();
    assert_eq!(count["input_tokens"], read);
    body["stream"] = true.into();
    let reply = server.post("/v1/messages", &body);
    let events: Vec<Value> = reply.events().iter().map(|event| event.parse().unwrap()).collect();
    let deltas: String = events.iter().filter_map(|event| event["delta"]["text"].as_str()).collect();
    assert_eq!(object["content"][0]["text"], deltas);
    assert!(reply.text().contains("event: message_stop\n"));
    let error = server.post("/v1/messages", &json!({"messages": hello()}));
    assert_eq!((error.status, &error.json()["type"]), (400, &json!("error")));
}

#[test]
fn lines_are_streamed() {
    let server = Running::shared();
    let options = json!({"temperature": 0, "num_predict": 6});
    for (path, asked, field) in [
        ("/api/chat", json!({"messages": hello(), "options": options}), "message"),
        ("/api/generate", json!({"prompt": "Hello", "options": options}), "response"),
    ] {
        let text = |object: &Value| match &object[field] {
            Value::String(text) => text.clone(),
            message => message["content"].as_str().unwrap().to_owned(),
        };
        let reply = server.post(path, &asked);
        assert_eq!(reply.status, 200, "{}", reply.text());
        let lines: Vec<Value> = reply.text().lines().map(|line| line.parse().unwrap()).collect();
        let last = lines.last().unwrap();
        assert_eq!(
            (&last["done"], &last["done_reason"], &last["eval_count"]),
            (&json!(true), &json!("length"), &json!(6))
        );
        let mut whole = asked.clone();
        whole["stream"] = false.into();
        let whole = server.post(path, &whole).json();
        assert_eq!(text(&whole), lines.iter().map(text).collect::<String>());
    }
    let tags = server.get("/api/tags").json();
    assert_eq!(tags["models"][0]["name"], format!("{MODEL}:latest"));
    assert_eq!(server.post("/api/show", &json!({"model": format!("{MODEL}:latest")})).status, 200);
    let error = server.post("/api/chat", &json!({"model": "other", "messages": hello()}));
    assert_eq!(error.status, 404);
    assert!(error.json()["error"].is_string());
}

#[test]
fn other_models_and_routes_are_not_found() {
    let server = Running::shared();
    let reply = server.post("/v1/chat/completions", &json!({"model": "gpt-4", "messages": hello()}));
    let error = reply.json()["error"].clone();
    assert_eq!((reply.status, &error["code"], &error["param"]), (404, &json!("model_not_found"), &json!("model")));
    assert_eq!(server.get("/v1/models").json()["data"][0]["id"], MODEL);
    assert_eq!(server.get(&format!("/v1/models/{MODEL}")).status, 200);
    assert_eq!(server.get("/v1/models/default").status, 200);
    assert_eq!(server.get("/v1/models/other").status, 404);
    assert_eq!(server.get("/v1/nothing").json()["error"]["code"], "unknown_url");
    assert_eq!(server.get("/v1/chat/completions").status, 405);
}

#[test]
fn unsupported_fields_are_named() {
    let server = Running::shared();
    let chat = |name: &str, value: Value| {
        let mut body = json!({"messages": hello(), "max_tokens": 1});
        body[name] = value;
        ("/v1/chat/completions", body, name.to_owned())
    };
    let text = |name: &str, value: Value| {
        let mut body = json!({"prompt": "a", "max_tokens": 1});
        body[name] = value;
        ("/v1/completions", body, name.to_owned())
    };
    let cases = [
        chat("top_logprobs", json!(2)),
        chat("priority", json!("urgent")),
        chat("service_tier", json!("gold")),
        chat("tools", json!([{"type": "function"}])),
        chat("stop", json!([""])),
        chat("logit_bias", json!({"999999999": 1})),
        chat("messages", json!([])),
        chat("messages", json!([{"role": "king", "content": "x"}])),
        text("suffix", json!("x")),
        text("prompt", json!([])),
    ];
    for (path, body, param) in cases {
        let reply = server.post(path, &body);
        let error = reply.json()["error"].clone();
        assert_eq!((reply.status, &error["param"]), (400, &json!(param)), "{body}: {error}");
    }
    let harmless = json!({"messages": hello(), "max_tokens": 1, "store": true, "never_heard_of": {"a": [1]}});
    assert_eq!(server.post("/v1/chat/completions", &harmless).status, 200);
    let long = json!({"messages": [{"role": "user", "content": "word ".repeat(2 * CONTEXT as usize)}]});
    let reply = server.post("/v1/chat/completions", &long);
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (400, &json!("context_length_exceeded")));
}

#[test]
fn probes_and_metrics_show_the_state() {
    let server = Running::shared();
    assert_eq!(server.get("/livez").text(), "ok\n");
    assert_eq!(server.get("/readyz").status, 200);
    assert_eq!(server.get("/health").json()["model"], MODEL);
    server.post("/v1/completions", &json!({"prompt": "a", "max_tokens": 2}));
    let metrics = server.get("/metrics").text();
    for name in ["waiting", "kv_pages_held", "evictions_total", "time_to_first_token_seconds_bucket{le=\"+Inf\"}"] {
        assert!(metrics.contains(&format!("cascadia_{name}")), "{name} is missing:\n{metrics}");
    }
    let status = server.get("/status").json();
    assert!(status["latencies"]["end_to_end_seconds"]["p99"].as_f64().unwrap() > 0.0, "{status}");
    let page = server.get("/");
    assert!(page.header("content-security-policy").unwrap().contains("default-src 'none'"));
    let tag = page.header("etag").unwrap();
    assert_eq!(server.request("GET /", &[("if-none-match", tag)], b"").status, 304);
    assert_eq!(server.get("/page/app.js").header("content-type"), Some("text/javascript; charset=utf-8"));
    let named = server.request("GET /livez", &[("x-request-id", "mine-1")], b"");
    assert_eq!(named.header("x-request-id"), Some("mine-1"));
    assert!(server.get("/livez").header("x-request-id").unwrap().starts_with("req_"));
}

#[test]
fn the_status_shows_the_fleet() {
    let board = FleetBoard::default();
    let server = Running::start(ServerOptions { fleet: Some(board.clone()), ..ServerOptions::default() });
    assert_eq!(server.get("/status").json()["fleet"], Value::Null);
    let fleet = json!({"stages": [{"layers": [0, 8], "node": "node-00"}]});
    board.show(fleet.clone());
    assert_eq!(server.get("/status").json()["fleet"], fleet);
    assert_eq!(Running::shared().get("/status").json()["fleet"], Value::Null);
}
