//! Messages made of content blocks, and their translation for chat templates.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::request::bounded::{Json, List};
use crate::request::tools::leave_out;
use crate::request::validate::shortened;

/// The most blocks of a message.
const MAX_BLOCKS: usize = 1024;

/// One turn of a conversation.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct BlockMessage {
    /// `user` or `assistant`.
    role: String,
    /// A text, or a list of blocks.
    #[schema(value_type = Object)]
    content: Blocks,
}

/// A text, or a list of blocks.
#[derive(Debug)]
pub(crate) struct Blocks(Vec<Block>);

/// One block of a message.
#[derive(Debug, Default, Deserialize)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    thinking: Option<String>,
    id: Option<String>,
    name: Option<String>,
    input: Option<Json>,
    tool_use_id: Option<String>,
    content: Option<Blocks>,
}

/// A function the model may call.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct BlockTool {
    /// `custom`; tools of other types are left out.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// Its name.
    name: String,
    /// What it does.
    description: Option<String>,
    /// A JSON schema of its arguments.
    #[schema(value_type = Option<Object>)]
    input_schema: Option<Json>,
}

impl BlockTool {
    /// The function as templates read it; `None` of a tool of another type, which models cannot call here.
    pub(crate) fn into_value(self) -> Result<Option<Value>, ApiError> {
        let Some(Json(schema)) = self.input_schema else {
            if let Some(kind) = self.kind.filter(|kind| kind != "custom") {
                leave_out(&kind);
                return Ok(None);
            }
            let message = format!("the tool `{}` has no input_schema; say what it takes", shortened(&self.name));
            return Err(ApiError::invalid("tools", message));
        };
        let description = self.description.unwrap_or_default();
        let function = json!({"name": self.name, "description": description, "parameters": schema});
        Ok(Some(json!({"type": "function", "function": function})))
    }
}

impl Blocks {
    /// The text of all blocks, which must be texts.
    pub(crate) fn into_text(self) -> Result<String, ApiError> {
        let mut text = String::new();
        for block in self.0 {
            match (block.kind.as_str(), block.text) {
                ("text", Some(more)) => text.push_str(&more),
                (kind, _) => return Err(wrong_block(kind)),
            }
        }
        Ok(text)
    }
}

impl BlockMessage {
    /// The messages that templates read in place of this one: results of functions are messages of their own.
    pub(crate) fn into_values(self) -> Result<Vec<Value>, ApiError> {
        let role = match self.role.as_str() {
            role @ ("user" | "assistant" | "system") => role,
            other => {
                let message = format!("a message has the role `{}`; use user or assistant", shortened(other));
                return Err(ApiError::invalid("messages", message));
            }
        };
        let (mut text, mut reasoning, mut calls, mut values) = (String::new(), String::new(), Vec::new(), Vec::new());
        let mut has_text = false;
        for block in self.content.0 {
            match block.kind.as_str() {
                "text" => {
                    text.push_str(block.text.as_deref().unwrap_or_default());
                    has_text = true;
                }
                "thinking" | "redacted_thinking" => reasoning.push_str(block.thinking.as_deref().unwrap_or_default()),
                "tool_use" => {
                    let arguments = block.input.map_or_else(|| json!({}), |input| input.0);
                    let function = json!({"name": block.name, "arguments": arguments});
                    calls.push(json!({"id": block.id, "type": "function", "function": function}));
                }
                "tool_result" => {
                    let content = block.content.map(Blocks::into_text).transpose()?.unwrap_or_default();
                    values.push(json!({"role": "tool", "tool_call_id": block.tool_use_id, "content": content}));
                }
                kind => return Err(wrong_block(kind)),
            }
        }
        if has_text || !calls.is_empty() || values.is_empty() {
            let mut value = json!({"role": role, "content": text});
            if !calls.is_empty() {
                value["tool_calls"] = calls.into();
            }
            if !reasoning.is_empty() {
                value["reasoning_content"] = reasoning.into();
            }
            values.push(value);
        }
        Ok(values)
    }
}

fn wrong_block(kind: &str) -> ApiError {
    let message = format!("a block has the type `{}`; this model reads only text", shortened(kind));
    ApiError::unsupported("messages", message)
}

impl<'de> Deserialize<'de> for Blocks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Blocks, D::Error> {
        struct TextOrBlocks;
        impl<'de> Visitor<'de> for TextOrBlocks {
            type Value = Blocks;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of blocks")
            }

            fn visit_str<E>(self, text: &str) -> Result<Blocks, E> {
                Ok(Blocks(vec![Block { kind: "text".to_owned(), text: Some(text.to_owned()), ..Block::default() }]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Blocks, A::Error> {
                let items = serde::de::value::SeqAccessDeserializer::new(items);
                Ok(Blocks(List::<Block, MAX_BLOCKS>::deserialize(items)?.0))
            }
        }
        deserializer.deserialize_any(TextOrBlocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_become_what_templates_read() {
        let check = |message: Value, expected: Option<Value>| {
            let found = serde_json::from_value::<BlockMessage>(message.clone()).ok();
            let found = found.and_then(|message| message.into_values().ok()).map(Value::from);
            assert_eq!(found, expected, "{message}");
        };
        check(json!({"role": "user", "content": "Hi"}), Some(json!([{"role": "user", "content": "Hi"}])));
        check(
            json!({"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""},
                {"type": "text", "text": "So"}, {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}}]}),
            Some(json!([{"role": "assistant", "content": "So", "reasoning_content": "hm", "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]}])),
        );
        check(
            json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "42"},
                {"type": "text", "text": "And?"}]}),
            Some(json!([{"role": "tool", "tool_call_id": "1", "content": "42"}, {"role": "user", "content": "And?"}])),
        );
        check(json!({"role": "user", "content": [{"type": "image", "source": {}}]}), None);
        check(json!({"role": "tool", "content": "x"}), None);
    }
}
