//! The format that a request asks its answer to have.

use cascadia_text::OutputFormat;
use serde_json::Value;

use crate::error::ApiError;

/// The format that `field` asks for: OpenAI's types, and `regex`, `choice` and `grammar` in the same style.
pub(crate) fn output_format(field: &'static str, requested: Option<&Value>) -> Result<Option<OutputFormat>, ApiError> {
    let Some(requested) = requested.filter(|requested| !requested.is_null()) else { return Ok(None) };
    let wrong = |message: &str| Err(ApiError::invalid(field, format!("{field} {message}")));
    let text = |name: &str| requested[name].as_str().map(str::to_owned);
    match requested["type"].as_str() {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(OutputFormat::JsonObject)),
        Some("json_schema") => {
            // The newer interface has the schema one level higher.
            let schemas = [&requested["json_schema"]["schema"], &requested["schema"]];
            match schemas.into_iter().find(|schema| schema.is_object()) {
                Some(schema) => Ok(Some(OutputFormat::JsonSchema(schema.clone()))),
                None => wrong("of type json_schema needs a schema, an object"),
            }
        }
        Some("regex") => match text("pattern") {
            Some(pattern) => Ok(Some(OutputFormat::Regex(pattern))),
            None => wrong("of type regex needs a pattern"),
        },
        Some("grammar") => match text("grammar") {
            Some(grammar) => Ok(Some(OutputFormat::Lark(grammar))),
            None => wrong("of type grammar needs a grammar in Lark's notation"),
        },
        Some("choice") => match serde_json::from_value::<Vec<String>>(requested["choices"].clone()) {
            Ok(choices) if !choices.is_empty() => Ok(Some(OutputFormat::Choice(choices))),
            _ => wrong("of type choice needs choices, a list of strings"),
        },
        _ => wrong("has no supported type; use text, json_object, json_schema, regex, choice or grammar"),
    }
}
