//! Messages of an API in the form that chat templates expect.

use serde_json::{Map, Value};

use crate::tool_calls::completed;
use crate::{ChatTemplate, TextError};

/// Parts of a message that are text.
const TEXT_PARTS: [&str; 4] = ["text", "input_text", "output_text", "refusal"];
/// What templates have in them that put arguments into their text as they are.
const TEXT_ARGUMENTS: [&str; 2] = ["['arguments'] +", "[\"arguments\"] +"];

impl ChatTemplate {
    /// Turns the messages of an API (OpenAI's chat completions) into what this template expects.
    ///
    /// Lists of text parts become text, and a content that is missing becomes empty. The arguments of calls become
    /// objects (text for templates that want text), results of tools get the name of their function, and developers
    /// become the system where a template does not know them. All other fields stay.
    pub fn prepare_messages(&self, messages: &Value) -> Result<Value, TextError> {
        let list = messages.as_array().ok_or_else(|| failure("messages", "must be a list"))?;
        let mut functions: Vec<(String, String)> = Vec::new();
        let prepared = list.iter().enumerate().map(|(index, message)| {
            let at = format!("messages[{index}]");
            let message = message.as_object().ok_or_else(|| failure(&at, "must be an object"))?;
            self.prepare_message(message, &at, &mut functions)
        });
        Ok(Value::Array(prepared.collect::<Result<_, _>>()?))
    }

    fn prepare_message(
        &self,
        message: &Map<String, Value>,
        at: &str,
        functions: &mut Vec<(String, String)>,
    ) -> Result<Value, TextError> {
        let mut message = message.clone();
        let role = message.get("role").and_then(Value::as_str).unwrap_or_default().to_owned();
        if role.is_empty() {
            return Err(failure(&format!("{at}.role"), "must be a text such as `user`"));
        }
        if role == "developer" && !self.mentions("developer") {
            message.insert("role".into(), "system".into());
        }
        let content = text_of(message.get("content").unwrap_or(&Value::Null), &format!("{at}.content"))?;
        message.insert("content".into(), content.into());
        match message.get("tool_calls") {
            Some(Value::Array(calls)) if !calls.is_empty() => {
                let prepare = |(index, call)| self.prepare_call(call, &format!("{at}.tool_calls[{index}]"), functions);
                let calls = calls.iter().enumerate().map(prepare).collect::<Result<Vec<_>, _>>()?;
                message.insert("tool_calls".into(), calls.into());
            }
            Some(Value::Null | Value::Array(_)) => drop(message.remove("tool_calls")),
            Some(_) => return Err(failure(&format!("{at}.tool_calls"), "must be a list")),
            None => {}
        }
        if role == "tool" && !message.contains_key("name") {
            let id = message.get("tool_call_id").and_then(Value::as_str).unwrap_or_default();
            if let Some((_, name)) = functions.iter().rev().find(|(known, _)| known == id) {
                message.insert("name".into(), name.as_str().into());
            }
        }
        Ok(Value::Object(message))
    }

    fn prepare_call(&self, call: &Value, at: &str, functions: &mut Vec<(String, String)>) -> Result<Value, TextError> {
        let mut call = call.clone();
        let function = call.get_mut("function").and_then(Value::as_object_mut);
        let function = function.ok_or_else(|| failure(&format!("{at}.function"), "must be an object"))?;
        let name = function.get("name").and_then(Value::as_str);
        let name = name.ok_or_else(|| failure(&format!("{at}.function.name"), "must be a text"))?.to_owned();
        let place = format!("{at}.function.arguments");
        let arguments = match function.get("arguments") {
            None | Some(Value::Null) => Value::Object(Map::new()),
            Some(Value::String(text)) if text.trim().is_empty() => Value::Object(Map::new()),
            // An answer that was cut off may end in the middle of a call, and is sent again with the conversation.
            Some(Value::String(text)) => serde_json::from_str(text)
                .or_else(|error| completed(text).ok_or(error))
                .map_err(|error| failure(&place, &format!("is not JSON: {error}")))?,
            Some(arguments) => arguments.clone(),
        };
        if !arguments.is_object() {
            return Err(failure(&place, "must be an object, written as JSON in a text"));
        }
        let wants_text = TEXT_ARGUMENTS.iter().any(|tell| self.mentions(tell));
        let arguments = if wants_text { Value::String(arguments.to_string()) } else { arguments };
        function.insert("arguments".into(), arguments);
        if let Some(id) = call.get("id").and_then(Value::as_str) {
            functions.push((id.to_owned(), name));
        }
        Ok(call)
    }
}

/// The text of a content.
fn text_of(content: &Value, at: &str) -> Result<String, TextError> {
    let parts = match content {
        Value::Null => return Ok(String::new()),
        Value::String(text) => return Ok(text.clone()),
        Value::Array(parts) => parts,
        _ => return Err(failure(at, "must be a text or a list of parts")),
    };
    let text = |(index, part): (usize, &Value)| {
        let at = format!("{at}[{index}]");
        let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
        if !TEXT_PARTS.contains(&kind) {
            return Err(failure(&at, &format!("is of type `{kind}`, and this model reads text only")));
        }
        let text = part.get("text").or_else(|| part.get("refusal")).and_then(Value::as_str);
        text.map(str::to_owned).ok_or_else(|| failure(&at, "has no `text`"))
    };
    parts.iter().enumerate().map(text).collect()
}

fn failure(at: &str, reason: &str) -> TextError {
    TextError::Messages { at: at.to_owned(), reason: reason.to_owned() }
}
