//! The functions that a request lets the model call.

use serde_json::Value;

use super::validate::{MustCall, shortened};
use crate::error::ApiError;

/// The most functions of a request.
pub(crate) const MAX_TOOLS: usize = 128;

/// Functions as templates read them, each with a type and a name; `None` if there are none.
pub(crate) fn check_tools(tools: Vec<Value>) -> Result<Option<Value>, ApiError> {
    if let Some(tool) = tools.iter().find(|tool| tool["type"] != "function" || !tool["function"]["name"].is_string()) {
        let kind = shortened(&tool["type"].to_string());
        return Err(ApiError::unsupported(
            "tools",
            format!("a tool has the type {kind}; only functions with a name are supported"),
        ));
    }
    Ok((!tools.is_empty()).then_some(Value::Array(tools)))
}

/// Which call OpenAI's `tool_choice` requires; `None` forbids calls.
pub(crate) fn must_call(choice: Option<&Value>) -> Result<Option<MustCall>, ApiError> {
    match choice {
        None | Some(Value::Null) => Ok(Some(MustCall::Nothing)),
        Some(Value::String(word)) if word == "auto" => Ok(Some(MustCall::Nothing)),
        Some(Value::String(word)) if word == "none" => Ok(None),
        Some(Value::String(word)) if word == "required" => Ok(Some(MustCall::Any)),
        Some(choice) => match [&choice["function"]["name"], &choice["name"]].into_iter().find_map(Value::as_str) {
            Some(name) => Ok(Some(MustCall::Function(name.to_owned()))),
            None => {
                let message = "tool_choice must be auto, none, required, or a function with its name";
                Err(ApiError::invalid("tool_choice", message))
            }
        },
    }
}
