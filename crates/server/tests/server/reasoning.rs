//! Reasoning and tool calls, separated from text in every protocol.

use cascadia_server::ServerOptions;
use serde_json::{Value, json};

use crate::harness::{Running, model_with_template};

/// With this template answers begin with reasoning, and the test model never ends it.
const THINKING: &str = "{% for message in messages %}{{ message.role }}: {{ message.content }}{{ eos_token }}{% endfor %}\
    {% if '</think>' in messages[-1].content %}{% endif %}assistant: <think>";

#[test]
fn reasoning_is_not_text() {
    let server = Running::serve(model_with_template(THINKING), ServerOptions::default());
    let messages = json!([{"role": "user", "content": "Hello"}]);
    let chat = json!({"messages": messages, "max_tokens": 6, "temperature": 0});
    let message = server.post("/v1/chat/completions", &chat).json()["choices"][0]["message"].clone();
    let reasoning = message["reasoning_content"].as_str().expect("the model thinks").to_owned();
    assert_eq!(message["content"], "", "{message}");
    let streamed = |path: &str, mut body: Value, find: &dyn Fn(&Value) -> Option<String>| -> String {
        body["stream"] = true.into();
        let reply = server.post(path, &body);
        assert_eq!(reply.status, 200, "{}", reply.text());
        let lines =
            if path.starts_with("/api/") { reply.text().lines().map(str::to_owned).collect() } else { reply.events() };
        lines.iter().filter_map(|line| line.parse().ok()).filter_map(|event| find(&event)).collect()
    };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let found =
        streamed("/v1/chat/completions", chat.clone(), &|e| text(&e["choices"][0]["delta"]["reasoning_content"]));
    assert_eq!(found, reasoning);

    let anthropic = server.post("/v1/messages", &chat).json();
    assert_eq!(anthropic["content"][0], json!({"type": "thinking", "thinking": reasoning, "signature": ""}));
    assert_eq!(streamed("/v1/messages", chat, &|event| text(&event["delta"]["thinking"])), reasoning);

    let options = json!({"num_predict": 6, "temperature": 0});
    let lines =
        streamed("/api/chat", json!({"messages": messages, "options": options}), &|e| text(&e["message"]["thinking"]));
    assert_eq!(lines, reasoning);

    let asked = json!({"input": "Hello", "max_output_tokens": 6, "temperature": 0});
    let response = server.post("/v1/responses", &asked).json();
    assert_eq!(response["output"][0]["type"], "reasoning", "{response}");
    assert_eq!(response["output"][0]["content"][0]["text"], reasoning);
    let delta = |event: &Value| text(&event["delta"]).filter(|_| event["type"] == "response.reasoning_text.delta");
    assert_eq!(streamed("/v1/responses", asked, &delta), reasoning);
}
