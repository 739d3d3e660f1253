//! Arguments of calls: where JSON ends, and conversion to JSON from other notations.

use serde_json::Value;

/// Follows an object or a list of JSON character by character to its end.
#[derive(Debug, Clone, Default)]
pub(crate) struct JsonEnd {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl JsonEnd {
    /// Whether the value ends with this character.
    pub(crate) fn feed(&mut self, character: char) -> bool {
        match character {
            _ if self.escaped => self.escaped = false,
            '\\' if self.in_string => self.escaped = true,
            '"' => self.in_string = !self.in_string,
            '{' | '[' if !self.in_string => self.depth += 1,
            '}' | ']' if !self.in_string => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 0;
            }
            _ => {}
        }
        false
    }
}

/// Whether functions can be called this.
pub(crate) fn is_name(text: &str) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || "_-.:/$".contains(character);
    !text.is_empty() && text.len() <= super::MAX_NAME_BYTES && text.chars().all(is_part)
}

/// The schemas of the parameters of functions, from an API's list of tools.
#[derive(Debug, Clone, Default)]
pub(crate) struct Parameters(Vec<(String, Value)>);

impl Parameters {
    pub(crate) fn new(tools: Option<&Value>) -> Parameters {
        let tools = tools.and_then(Value::as_array).into_iter().flatten();
        let named = tools.filter_map(|tool| {
            let function = tool.get("function").unwrap_or(tool);
            Some((function.get("name")?.as_str()?.to_owned(), function.get("parameters")?.get("properties")?.clone()))
        });
        Parameters(named.collect())
    }

    /// A value that was written as plain text, as JSON: a string unless it reads as what the schema wants instead.
    pub(crate) fn to_json(&self, function: &str, key: &str, text: &str) -> String {
        let properties = self.0.iter().find(|(name, _)| name == function).map(|(_, properties)| properties);
        let kinds = properties.and_then(|properties| properties.get(key)).map(kinds).unwrap_or_default();
        let written: Option<Value> = serde_json::from_str(text).ok();
        let fits = written.as_ref().is_some_and(|value| {
            kinds.is_empty() || (!value.is_string() && kinds.iter().any(|kind| *kind == kind_of(value)))
        });
        let wants_text = kinds.is_empty() || kinds.contains(&"string");
        match written {
            Some(_) if fits || !wants_text => text.trim().to_owned(),
            _ => Value::from(text).to_string(),
        }
    }
}

/// The types that a schema allows, as far as it says so directly.
fn kinds(schema: &Value) -> Vec<&str> {
    let alternatives = ["anyOf", "oneOf"].iter().filter_map(|word| schema.get(word)?.as_array()).flatten();
    let mut kinds: Vec<&str> = Vec::new();
    for schema in alternatives.chain([schema]) {
        match (schema.get("type"), schema.get("enum")) {
            (Some(Value::String(kind)), _) => kinds.push(kind),
            (Some(Value::Array(list)), _) => kinds.extend(list.iter().filter_map(Value::as_str)),
            (_, Some(Value::Array(values))) => kinds.extend(values.iter().map(|value| kind_of(value))),
            _ => {}
        }
    }
    if kinds.contains(&"number") {
        kinds.push("integer");
    }
    kinds
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "string",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::Bool(_) => "boolean",
        Value::Null => "null",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// An object with bare keys and strings between marks (`{city:<|"|>Rome<|"|>,days:2}`), as JSON if it is one.
pub(crate) fn bare_words_to_json(text: &str, quote: &str) -> Option<String> {
    let mut json = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        if let Some(string) = rest.strip_prefix(quote) {
            let (string, after) = string.split_once(quote)?;
            json.push_str(&Value::from(string).to_string());
            rest = after;
        } else if "{}[],:".contains(character) || character.is_whitespace() {
            json.push(character);
            rest = &rest[character.len_utf8()..];
        } else {
            let end = rest
                .find(|c: char| "{}[],:".contains(c))
                .unwrap_or(rest.len())
                .min(rest.find(quote).unwrap_or(rest.len()));
            let (word, after) = rest.split_at(end);
            let (word, is_key) = (word.trim_end(), after.starts_with(':'));
            let is_json = !is_key && serde_json::from_str::<Value>(word).is_ok();
            match word {
                "None" if !is_key => json.push_str("null"),
                _ if is_json || word.starts_with('"') => json.push_str(word),
                _ => json.push_str(&Value::from(word).to_string()),
            }
            rest = after;
        }
    }
    serde_json::from_str::<Value>(&json).is_ok_and(|value| value.is_object()).then_some(json)
}
