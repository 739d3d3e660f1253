//! Messages of a conversation: as clients send them, and as chat templates read them.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::request::bounded::{Json, List};
use crate::request::validate::shortened;

/// The most messages of a conversation.
pub(crate) const MAX_MESSAGES: usize = 4096;
/// The most parts of a message, and the most calls in one.
const MAX_PARTS: usize = 256;

/// One turn of a conversation.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct Message {
    /// `system`, `developer`, `user`, `assistant`, `tool` or `function`.
    role: String,
    /// A text, or a list of text parts.
    #[schema(value_type = Option<Object>)]
    content: Option<Content>,
    /// The reasoning of the assistant before its answer.
    reasoning_content: Option<String>,
    /// The same as Ollama's clients have it.
    thinking: Option<String>,
    /// Pictures beside the text; this server reads only text.
    #[schema(value_type = Option<Vec<Object>>)]
    images: Option<Json>,
    /// The function that the assistant called, as older clients have it.
    #[schema(value_type = Option<Object>)]
    function_call: Option<Function>,
    /// Functions that the assistant called.
    #[schema(value_type = Option<Vec<Object>>)]
    tool_calls: Option<List<MessageToolCall, MAX_PARTS>>,
    /// The call that a `tool` message answers.
    tool_call_id: Option<String>,
    /// Who sent it, or which function returned it.
    name: Option<String>,
    /// Which function returned it, as Ollama's clients have it.
    tool_name: Option<String>,
}

/// Text, whole or in parts.
#[derive(Debug)]
pub(crate) struct Content(pub(crate) String);

#[derive(Debug, Deserialize)]
struct MessageToolCall {
    id: Option<String>,
    function: Function,
}

#[derive(Debug, Deserialize)]
struct Function {
    name: String,
    /// JSON as text, as OpenAI's clients send it, or as an object.
    arguments: Option<Json>,
}

impl Message {
    /// The message as templates read it.
    pub(crate) fn into_value(self) -> Result<Value, ApiError> {
        let role = match self.role.as_str() {
            role @ ("system" | "developer" | "user" | "assistant" | "tool") => role,
            "function" => "tool",
            other => {
                let message =
                    format!("a message has the role `{}`; use system, user, assistant or tool", shortened(other));
                return Err(ApiError::invalid("messages", message));
            }
        };
        let mut value = Map::new();
        value.insert("role".to_owned(), role.into());
        if self.images.is_some_and(|images| !images.0.is_null() && images.0 != json!([])) {
            return Err(ApiError::unsupported("images", "a message has images; this model reads only text"));
        }
        let mut calls = self.tool_calls.map(|calls| calls.0).unwrap_or_default();
        calls.extend(self.function_call.map(|function| MessageToolCall { id: None, function }));
        match self.content {
            Some(Content(text)) => drop(value.insert("content".to_owned(), text.into())),
            None if role == "assistant" && !calls.is_empty() => {
                value.insert("content".to_owned(), Value::Null);
            }
            None => {
                return Err(ApiError::invalid("messages", format!("a message with the role {role} has no content")));
            }
        }
        let texts = [
            ("reasoning_content", self.reasoning_content.or(self.thinking)),
            ("tool_call_id", self.tool_call_id),
            ("name", self.name.or(self.tool_name)),
        ];
        for (name, text) in texts {
            value.extend(text.map(|text| (name.to_owned(), text.into())));
        }
        if !calls.is_empty() {
            value.insert("tool_calls".to_owned(), calls.into_iter().map(MessageToolCall::into_value).collect());
        }
        Ok(value.into())
    }
}

impl MessageToolCall {
    fn into_value(self) -> Value {
        let arguments = self.function.arguments.unwrap_or_default().0;
        let function = json!({"name": self.function.name, "arguments": arguments});
        match self.id {
            Some(id) => json!({"id": id, "type": "function", "function": function}),
            None => json!({"type": "function", "function": function}),
        }
    }
}

/// One part of a message.
#[derive(Deserialize)]
struct ContentPart {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    refusal: Option<String>,
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Content, D::Error> {
        struct TextOrParts;
        impl<'de> serde::de::Visitor<'de> for TextOrParts {
            type Value = Content;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a text or a list of text parts")
            }

            fn visit_str<E>(self, text: &str) -> Result<Content, E> {
                Ok(Content(text.to_owned()))
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, parts: A) -> Result<Content, A::Error> {
                let parts = serde::de::value::SeqAccessDeserializer::new(parts);
                let parts = List::<ContentPart, MAX_PARTS>::deserialize(parts)?;
                let mut text = String::new();
                for ContentPart { kind, text: more, refusal } in parts.0 {
                    match (kind.as_str(), more.or(refusal)) {
                        ("text" | "input_text" | "output_text" | "refusal", Some(more)) => text.push_str(&more),
                        _ => {
                            let kind = shortened(&kind);
                            let message = format!("a part has the type `{kind}`; this model reads only `text`");
                            return Err(serde::de::Error::custom(message));
                        }
                    }
                }
                Ok(Content(text))
            }
        }
        deserializer.deserialize_any(TextOrParts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_become_what_templates_read() {
        let check = |message: Value, expected: Option<Value>| {
            let found = serde_json::from_value::<Message>(message.clone()).ok().and_then(|m| m.into_value().ok());
            assert_eq!(found, expected, "{message}");
        };
        let plain = json!({"role": "user", "content": "Hi"});
        check(plain.clone(), Some(plain.clone()));
        check(
            json!({"role": "user", "content": [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]}),
            Some(plain),
        );
        check(
            json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]}),
            Some(json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]})),
        );
        check(json!({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}), None);
        check(json!({"role": "user", "content": "x", "images": ["iVBORw0KGgo="]}), None);
        check(
            json!({"role": "function", "name": "f", "content": "2"}),
            Some(json!({"role": "tool", "name": "f", "content": "2"})),
        );
        check(
            json!({"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}}),
            Some(json!({"role": "assistant", "content": null, "tool_calls": [
                {"type": "function", "function": {"name": "f", "arguments": "{}"}}]})),
        );
        check(json!({"role": "stranger", "content": "x"}), None);
        check(json!({"role": "user"}), None);
        check(json!({"role": "assistant", "content": null}), None);
    }
}
