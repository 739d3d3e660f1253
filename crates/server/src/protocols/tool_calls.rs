//! Tool calls of an answer in the forms that protocols share.

use serde_json::{Value, json};

use crate::answer::ToolCall;

/// The id of a tool call in the answer with this id.
pub(crate) fn call_id(answer: &str, choice: usize, index: usize) -> String {
    let random = answer.rsplit(['-', '_']).next().unwrap_or(answer);
    format!("call_{random}_{choice}_{index}")
}

/// A tool call as OpenAI's clients read it.
pub(crate) fn openai_call(call: &ToolCall, id: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}})
}

/// The arguments as an object, for clients that do not read text.
pub(crate) fn arguments_object(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Value::Object(object),
        _ => json!({}),
    }
}
