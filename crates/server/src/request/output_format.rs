//! The format that a request asks its answer to have.

use cascadia_text::OutputFormat;
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::request::validate::shortened;

/// The format that `field` asks for: OpenAI's types, and `regex`, `choice` and `grammar` in the same style.
pub(crate) fn output_format(field: &'static str, requested: Option<&Value>) -> Result<Option<OutputFormat>, ApiError> {
    let Some(requested) = requested.filter(|requested| !requested.is_null()) else { return Ok(None) };
    let wrong = |message: &str| Err(ApiError::invalid(field, format!("{field} {message}")));
    let text = |name: &str| requested[name].as_str().map(str::to_owned);
    match requested["type"].as_str() {
        Some("text") => Ok(None),
        Some("json_object" | "json") => {
            // A schema beside it is what clients of llama.cpp send, a value those of text-generation-inference.
            let schema = [&requested["schema"], &requested["value"]].into_iter().find(|schema| schema.is_object());
            Ok(Some(schema.map_or(OutputFormat::JsonObject, |schema| OutputFormat::JsonSchema(schema.clone()))))
        }
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

/// The format that a field of another server's requests asks for: vLLM's `guided_…` and `structured_outputs`, SGLang's
/// `regex`, llama.cpp's `grammar` and `json_schema`.
pub(crate) fn named_format(field: &'static str, value: &Value) -> Result<Option<OutputFormat>, ApiError> {
    let wrong = |message: &str| Err(ApiError::invalid(field, format!("{field} {message}")));
    match (field, value) {
        (_, Value::Null) => Ok(None),
        // llama.cpp's clients send what they do not use as an empty text.
        ("regex" | "grammar" | "guided_regex" | "guided_grammar", Value::String(text)) if text.is_empty() => Ok(None),
        ("regex" | "guided_regex", Value::String(pattern)) => Ok(Some(OutputFormat::Regex(pattern.clone()))),
        ("grammar" | "guided_grammar", Value::String(grammar)) if grammar.contains("::=") => {
            let message = format!(
                "{field} is in the notation of llama.cpp (GBNF), which is not supported; write it in Lark's notation, or send \
                 a JSON schema or a regular expression"
            );
            Err(ApiError::unsupported(field, message))
        }
        ("grammar" | "guided_grammar", Value::String(grammar)) => Ok(Some(OutputFormat::Lark(grammar.clone()))),
        ("json_schema" | "guided_json", Value::Object(_)) => Ok(Some(OutputFormat::JsonSchema(value.clone()))),
        ("json_schema" | "guided_json", Value::String(text)) => match serde_json::from_str(text) {
            Ok(schema @ Value::Object(_)) => Ok(Some(OutputFormat::JsonSchema(schema))),
            _ => wrong("must be a JSON schema, an object"),
        },
        ("guided_choice", Value::Array(_)) => match serde_json::from_value::<Vec<String>>(value.clone()) {
            Ok(choices) if !choices.is_empty() => Ok(Some(OutputFormat::Choice(choices))),
            _ => wrong("must be a list of texts"),
        },
        ("structured_outputs", Value::Object(fields)) => structured_output(field, fields),
        ("regex" | "guided_regex" | "grammar" | "guided_grammar", _) => wrong("must be a text"),
        ("guided_choice", _) => wrong("must be a list of texts"),
        _ => wrong("must be an object"),
    }
}

/// The one format inside vLLM's `structured_outputs`.
fn structured_output(field: &'static str, fields: &Map<String, Value>) -> Result<Option<OutputFormat>, ApiError> {
    let wrong = |message: String| Err(ApiError::invalid(field, message));
    let mut found = None;
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_null() && **value != Value::Bool(false)) {
        let format = match name.as_str() {
            "json" => named_format("guided_json", value),
            "regex" => named_format("guided_regex", value),
            "choice" => named_format("guided_choice", value),
            "grammar" => named_format("guided_grammar", value),
            "json_object" => Ok(Some(OutputFormat::JsonObject)),
            // White space is bounded here anyway, and there is no other way to compute a format.
            "disable_any_whitespace" | "disable_fallback" => continue,
            other => {
                let message = format!("{field}.{} is not offered here; leave it out", shortened(other));
                return Err(ApiError::unsupported(field, message));
            }
        };
        let format = format.map_err(|error| ApiError { param: Some(format!("{field}.{name}")), ..error })?;
        if found.replace(format).is_some() {
            return wrong(format!("{field} gives more than one format; send one"));
        }
    }
    Ok(found.flatten())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_schema_lies_in_many_places() {
        let schema = json!({"type": "object"});
        for requested in [
            json!({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}),
            json!({"type": "json_schema", "schema": schema}),
            json!({"type": "json_object", "schema": schema}),
            json!({"type": "json_object", "value": schema}),
            json!({"type": "json", "value": schema}),
        ] {
            let found = output_format("response_format", Some(&requested)).ok().flatten();
            assert_eq!(found.as_ref().map(OutputFormat::name), Some("JSON schema"), "{requested}");
        }
        let any = output_format("response_format", Some(&json!({"type": "json_object"}))).ok().flatten();
        assert_eq!(any.as_ref().map(OutputFormat::name), Some("JSON object"));
    }

    #[test]
    fn formats_have_many_names() {
        let check = |field: &'static str, value: Value, expected: Result<Option<&str>, &str>| {
            let found = named_format(field, &value);
            let shown = found.as_ref().map(|format| format.as_ref().map(OutputFormat::name));
            let shown = shown.map_err(|error| error.param.as_deref().unwrap_or_default());
            assert_eq!(shown, expected, "{field}: {value}");
        };
        check("regex", json!("a+"), Ok(Some("regular expression")));
        check("regex", json!(""), Ok(None));
        check("guided_json", json!({"type": "object"}), Ok(Some("JSON schema")));
        check("guided_json", json!("{\"type\": \"object\"}"), Ok(Some("JSON schema")));
        check("guided_json", json!("x"), Err("guided_json"));
        check("grammar", json!("root ::= \"a\""), Err("grammar"));
        check("grammar", json!("start: \"a\""), Ok(Some("Lark grammar")));
        check("guided_choice", json!(["a"]), Ok(Some("list of choices")));
        check("guided_choice", json!([]), Err("guided_choice"));
        check("structured_outputs", json!({"regex": "a", "json": null}), Ok(Some("regular expression")));
        check("structured_outputs", json!({"json_object": true}), Ok(Some("JSON object")));
        check("structured_outputs", json!({"regex": "a", "choice": ["b"]}), Err("structured_outputs"));
        check("structured_outputs", json!({"structural_tag": "a"}), Err("structured_outputs"));
        check("structured_outputs", json!({"choice": 7}), Err("structured_outputs.choice"));
        check("structured_outputs", json!([]), Err("structured_outputs"));
    }
}
