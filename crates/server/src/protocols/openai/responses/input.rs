//! The input of a response: a text, or messages, calls and their results as items.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::protocols::openai::message::{Content, MAX_MESSAGES};
use crate::request::bounded::List;
use crate::request::validate::shortened;

/// A text, or a list of items.
#[derive(Debug)]
pub(crate) struct Input(Vec<Item>);

/// One item; which fields it has depends on its type.
#[derive(Debug, Default, Deserialize)]
struct Item {
    #[serde(rename = "type")]
    kind: Option<String>,
    role: Option<String>,
    content: Option<Content>,
    call_id: Option<String>,
    name: Option<String>,
    arguments: Option<String>,
    output: Option<Content>,
}

impl Input {
    /// The messages that templates read.
    pub(crate) fn into_messages(self) -> Result<Vec<Value>, ApiError> {
        if self.0.is_empty() {
            return Err(ApiError::invalid("input", "input is empty; send a text or at least one message"));
        }
        let messages = self.0.into_iter().map(Item::into_message).collect::<Result<Vec<_>, _>>()?;
        Ok(messages.into_iter().flatten().collect())
    }
}

impl Item {
    fn into_message(self) -> Result<Option<Value>, ApiError> {
        match self.kind.as_deref().unwrap_or("message") {
            "message" => {
                let Some(Content(text)) = self.content else {
                    return Err(ApiError::invalid("input", "a message of the input has no content"));
                };
                match self.role.as_deref() {
                    Some(role @ ("developer" | "system" | "user" | "assistant")) => {
                        Ok(Some(json!({"role": role, "content": text})))
                    }
                    _ => Err(ApiError::invalid("input", "a message has a role other than system, user or assistant")),
                }
            }
            "function_call" => {
                let function = json!({"name": self.name, "arguments": self.arguments.unwrap_or_default()});
                let call = json!({"id": self.call_id, "type": "function", "function": function});
                Ok(Some(json!({"role": "assistant", "content": null, "tool_calls": [call]})))
            }
            "function_call_output" => {
                let output = self.output.map_or_else(String::new, |Content(text)| text);
                Ok(Some(json!({"role": "tool", "tool_call_id": self.call_id, "content": output})))
            }
            // Reasoning of earlier responses, which models do not read again.
            "reasoning" => Ok(None),
            other => {
                let message = format!(
                    "an item has the type `{}`; only messages, function calls and their outputs are supported",
                    shortened(other)
                );
                Err(ApiError::unsupported("input", message))
            }
        }
    }
}

/// A tool as templates read it: the fields of a function are one level higher here. What is no function stays as it is.
pub(crate) fn function(mut tool: Value) -> Value {
    if tool["type"] != "function" {
        return tool;
    }
    let field = |tool: &mut Value, name: &str| tool[name].take();
    let function = json!({
        "name": field(&mut tool, "name"),
        "description": field(&mut tool, "description"),
        "parameters": field(&mut tool, "parameters"),
    });
    json!({"type": "function", "function": function})
}

impl<'de> Deserialize<'de> for Input {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Input, D::Error> {
        struct TextOrItems;
        impl<'de> Visitor<'de> for TextOrItems {
            type Value = Input;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of items")
            }

            fn visit_str<E>(self, text: &str) -> Result<Input, E> {
                let (role, content) = (Some("user".to_owned()), Some(Content(text.to_owned())));
                Ok(Input(vec![Item { role, content, ..Item::default() }]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Input, A::Error> {
                let items = serde::de::value::SeqAccessDeserializer::new(items);
                Ok(Input(List::<Item, MAX_MESSAGES>::deserialize(items)?.0))
            }
        }
        deserializer.deserialize_any(TextOrItems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_become_messages() {
        let check = |input: Value, expected: Option<Value>| {
            let found = serde_json::from_value::<Input>(input.clone()).ok();
            let found = found.and_then(|input| input.into_messages().ok()).map(Value::from);
            assert_eq!(found, expected, "{input}");
        };
        let user = json!({"role": "user", "content": "Hi"});
        check(json!("Hi"), Some(json!([user])));
        check(json!([{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]), Some(json!([user])));
        check(
            json!([{"type": "function_call", "call_id": "1", "name": "f", "arguments": "{\"a\": 1}"},
                {"type": "function_call_output", "call_id": "1", "output": "2"}, {"type": "reasoning", "summary": []}]),
            Some(json!([{"role": "assistant", "content": null, "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
                {"role": "tool", "tool_call_id": "1", "content": "2"}])),
        );
        for wrong in [json!([]), json!([{"role": "user"}]), json!([{"type": "web_search_call"}]), json!(7)] {
            check(wrong, None);
        }
    }
}
