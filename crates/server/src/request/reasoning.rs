//! How much a model is to reason before it answers: what requests say of it, as variables of chat templates.

use serde_json::{Map, Value};

use super::validate::shortened;
use crate::error::ApiError;

/// Under which names templates have a switch for reasoning.
pub(crate) const SWITCHES: [&str; 2] = ["enable_thinking", "thinking"];
/// Under which name templates have an amount of reasoning.
pub(crate) const EFFORT: &str = "reasoning_effort";

/// The variables for OpenAI's `reasoning_effort`. A template that knows none of them reasons as it always does.
pub(crate) fn effort_variables(field: &'static str, effort: &str) -> Result<Map<String, Value>, ApiError> {
    let is_on = match effort {
        "none" => false,
        "minimal" | "low" | "medium" | "high" | "xhigh" => true,
        other => {
            let message = format!("{field} is `{}`; use none, minimal, low, medium, high or xhigh", shortened(other));
            return Err(ApiError::invalid(field, message));
        }
    };
    let mut variables = switched(is_on);
    variables.extend(is_on.then(|| (EFFORT.to_owned(), effort.into())));
    Ok(variables)
}

/// The variables that turn reasoning on or off.
pub(crate) fn switched(is_on: bool) -> Map<String, Value> {
    SWITCHES.into_iter().map(|name| (name.to_owned(), is_on.into())).collect()
}
