//! Messages of an API become what chat templates expect.

use cascadia_text::{ChatTemplate, TemplateLimits, TextError};
use serde_json::{Value, json};

fn template(source: &str) -> ChatTemplate {
    ChatTemplate::new(source, TemplateLimits::default()).unwrap()
}

fn call(arguments: Value) -> Value {
    json!({"id": "c1", "type": "function", "function": {"name": "get", "arguments": arguments}})
}

#[test]
fn messages_are_prepared() {
    let plain = template("{{ messages }}");
    for (message, expected) in [
        (json!({"role": "user", "content": "Hi"}), json!({"role": "user", "content": "Hi"})),
        (
            json!({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]}),
            json!({"role": "user", "content": "ab"}),
        ),
        (json!({"role": "developer", "content": "x"}), json!({"role": "system", "content": "x"})),
        (
            json!({"role": "assistant", "content": null, "tool_calls": [call(json!("{\"a\": [1]}"))]}),
            json!({"role": "assistant", "content": "", "tool_calls": [call(json!({"a": [1]}))]}),
        ),
        (
            json!({"role": "assistant", "tool_calls": [call(json!(""))], "reasoning_content": "Hm"}),
            json!({"role": "assistant", "tool_calls": [call(json!({}))], "reasoning_content": "Hm", "content": ""}),
        ),
        // An answer that was cut off in the middle of a call.
        (
            json!({"role": "assistant", "content": "", "tool_calls": [call(json!("{\"a\": [1, \"b"))]}),
            json!({"role": "assistant", "content": "", "tool_calls": [call(json!({"a": [1, "b"]}))]}),
        ),
        (json!({"role": "assistant", "content": "x", "tool_calls": []}), json!({"role": "assistant", "content": "x"})),
    ] {
        let prepared = plain.prepare_messages(&json!([message])).unwrap();
        assert_eq!(prepared, json!([expected]));
    }
}

#[test]
fn results_get_the_name_of_their_function() {
    let result = json!({"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "22"}]});
    let messages = json!([{"role": "assistant", "tool_calls": [call(json!("{}"))]}, result]);
    let prepared = template("{{ messages }}").prepare_messages(&messages).unwrap();
    assert_eq!(prepared[1], json!({"role": "tool", "tool_call_id": "c1", "content": "22", "name": "get"}));
}

#[test]
fn templates_get_what_they_can_use() {
    let messages = json!([{"role": "developer", "content": "x", "tool_calls": [call(json!("{\"a\":1}"))]}]);
    let knowing = template("{% if messages[0].role == 'developer' %}{{ tool['arguments'] + '' }}{% endif %}");
    let prepared = knowing.prepare_messages(&messages).unwrap();
    assert_eq!(prepared[0]["role"], "developer");
    assert_eq!(prepared[0]["tool_calls"][0]["function"]["arguments"], "{\"a\":1}");
}

#[test]
fn wrong_messages_are_named() {
    let plain = template("{{ messages }}");
    for (messages, place) in [
        (json!({}), "messages"),
        (json!([3]), "messages[0]"),
        (json!([{"content": "x"}]), "messages[0].role"),
        (json!([{"role": "user", "content": 3}]), "messages[0].content"),
        (json!([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]), "messages[0].content[0]"),
        (json!([{"role": "user", "content": [{"type": "text"}]}]), "messages[0].content[0]"),
        (json!([{"role": "assistant", "tool_calls": 3}]), "messages[0].tool_calls"),
        (json!([{"role": "assistant", "tool_calls": [{}]}]), "messages[0].tool_calls[0].function"),
        (
            json!([{"role": "assistant", "tool_calls": [call(json!("x"))]}]),
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            json!([{"role": "assistant", "tool_calls": [call(json!([1]))]}]),
            "messages[0].tool_calls[0].function.arguments",
        ),
    ] {
        let error = plain.prepare_messages(&messages).expect_err(place);
        assert!(matches!(&error, TextError::Messages { at, .. } if at == place), "{place}: {error}");
    }
}
