//! The form that an answer must have: what doors ask for, and how the model is held to it.

use std::sync::OnceLock;

use cascadia_engine::ModelText;
use cascadia_text::{Constraint, GrammarCompiler, OutputFormat};
use serde_json::Value;

use crate::error::ApiError;

/// Makes constraints for one model. The tables are made when first asked for, because they take time and memory.
#[derive(Default)]
pub(crate) struct OutputConstraints {
    compiler: OnceLock<Result<GrammarCompiler, String>>,
}

impl OutputConstraints {
    /// The state of an answer that must have a format.
    pub(crate) fn constraint(&self, format: &OutputFormat, text: &ModelText) -> Result<Constraint, ApiError> {
        let make = || GrammarCompiler::new(text.tokenizer(), &text.special().stop).map_err(|error| error.to_string());
        match self.compiler.get_or_init(make) {
            Ok(compiler) => Ok(compiler.compile(format)?),
            Err(problem) => Err(ApiError::unsupported("response_format", problem)),
        }
    }
}

/// What `field` asks for: OpenAI's forms, and `regex`, `choice` and `grammar` in the same manner.
pub(crate) fn output_format(field: &'static str, asked: Option<&Value>) -> Result<Option<OutputFormat>, ApiError> {
    let Some(asked) = asked.filter(|asked| !asked.is_null()) else { return Ok(None) };
    let wrong = |message: &str| Err(ApiError::invalid(field, format!("{field} {message}")));
    let text = |name: &str| asked[name].as_str().map(str::to_owned);
    match asked["type"].as_str() {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(OutputFormat::JsonObject)),
        Some("json_schema") => {
            // The newer interface has the schema one level higher.
            let places = [&asked["json_schema"]["schema"], &asked["schema"]];
            match places.into_iter().find(|schema| schema.is_object()) {
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
            None => wrong("of type grammar needs a grammar, in Lark's notation"),
        },
        Some("choice") => match serde_json::from_value::<Vec<String>>(asked["choices"].clone()) {
            Ok(choices) if !choices.is_empty() => Ok(Some(OutputFormat::Choice(choices))),
            _ => wrong("of type choice needs choices, a list of texts"),
        },
        _ => wrong("has no type known here; use text, json_object, json_schema, regex, choice or grammar"),
    }
}
