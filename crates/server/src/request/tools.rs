//! The functions that a request lets the model call.

use serde_json::Value;

use super::validate::{MustCall, shortened};
use crate::error::ApiError;

/// The most functions of a request.
pub(crate) const MAX_TOOLS: usize = 128;

/// Functions as templates read them, each with a type and a name; `None` if there are none. Tools of other types are left
/// out: clients offer all they have, and a model that cannot see one does not call it.
pub(crate) fn check_tools(tools: Vec<Value>) -> Result<Option<Value>, ApiError> {
    let mut functions = Vec::with_capacity(tools.len());
    for tool in tools {
        match tool["type"].as_str() {
            Some("function") if tool["function"]["name"].is_string() => functions.push(tool),
            Some(kind) if kind != "function" => leave_out(kind),
            _ => {
                let message = "a tool has no type, or is a function without a name; give each function a name";
                return Err(ApiError::invalid("tools", message));
            }
        }
    }
    Ok((!functions.is_empty()).then_some(Value::Array(functions)))
}

/// Says in the log that a tool of this type is left out.
pub(crate) fn leave_out(kind: &str) {
    tracing::info!(kind = shortened(kind), "a tool is left out, because only functions are supported");
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
