//! Output formats for answers that must be a call whose arguments fit the schemas of the tools.

use serde_json::{Value, json};

use super::arguments::is_name;
use super::formats::{List, ReasoningFormat, Shape, Tags, ToolCallFormat};
use crate::grammar::{quote, with_bounded_space};
use crate::{OutputFormat, TextError, Tokenizer};

/// Most calls in one answer.
const MAX_CALLS: usize = 8;
/// Text without a closing tag in it.
const PLAIN: &str = r"/([^<]|<[^\/<])*/";

/// Which tools may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolChoice<'a> {
    /// Any of them, and at least one.
    Required,
    /// This one, once.
    Function(&'a str),
}

/// An answer that consists of calls.
#[derive(Debug, Clone, Copy)]
pub struct RequiredCalls<'a> {
    /// How the model writes calls.
    pub calls: ToolCallFormat,
    /// The tools as the API has them.
    pub tools: &'a Value,
    /// Which of them may be called.
    pub choice: ToolChoice<'a>,
    /// The reasoning that the prompt has opened already, to be closed before the call.
    pub open_reasoning: Option<ReasoningFormat>,
}

impl RequiredCalls<'_> {
    /// The format for a model with this tokenizer. Formats that are not made of JSON or tags have none.
    pub fn output_format(&self, tokenizer: &Tokenizer) -> Result<OutputFormat, TextError> {
        let marks = Marks::new(tokenizer);
        let (format, functions) = (self.calls.0, self.functions()?);
        let mut rules = Vec::new();
        let mut calls = Vec::new();
        for (index, (name, schema)) in functions.iter().enumerate() {
            calls.push(format!("call{index}"));
            let body = match &format.shape {
                Shape::Json { arguments, .. } => {
                    rules.push(format!("arguments{index}: %json {schema}"));
                    let before = quote(&format!("{{\"name\": {}, \"{arguments}\": ", Value::from(name.as_str())));
                    format!("{before} arguments{index} \"}}\"")
                }
                Shape::Named { separator, prefix } => {
                    rules.push(format!("arguments{index}: %json {schema}"));
                    let number = if prefix.is_empty() { "" } else { ":0" };
                    let name = quote(&format!("{prefix}{name}{number}"));
                    format!("{name} {} arguments{index}", marks.spell(separator))
                }
                Shape::Channels => {
                    rules.push(format!("arguments{index}: %json {schema}"));
                    let header =
                        marks.spell(&format!("<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"));
                    format!("{header} arguments{index}")
                }
                Shape::Tagged(tags) => tagged(tags, name, schema, &marks),
                Shape::BareWords { .. } => {
                    let reason = format!("models of the format `{}` cannot be made to call tools", self.calls.name());
                    return Err(TextError::Messages { at: "tool_choice".into(), reason });
                }
            };
            rules.push(format!("call{index}: {body}"));
        }
        let most = match self.choice {
            ToolChoice::Required => MAX_CALLS,
            ToolChoice::Function(_) => 1,
        };
        let start = self.around(&format!("({})", calls.join(" | ")), most, &marks);
        let reasoning =
            self.open_reasoning.map(|reasoning| format!("{PLAIN} {} \"\\n\\n\"", marks.spell(reasoning.close)));
        rules.insert(0, format!("start: {} {start}", reasoning.unwrap_or_default()));
        Ok(OutputFormat::Lark(rules.join("\n") + "\n"))
    }

    /// One or more calls with all that stands around them.
    fn around(&self, call: &str, most: usize, marks: &Marks) -> String {
        let format = self.calls.0;
        let [open, close] = [format.open, format.close].map(|mark| marks.spell(mark));
        let [begin, end] = format.section.map(|mark| marks.spell(mark));
        let more = |item: &str| if most > 1 { format!("({item}){{0,{}}}", most - 1) } else { String::new() };
        match &format.shape {
            Shape::Json { list: List::Always, .. } => {
                format!("{open} \"[\" {call} {} \"]\" {close}", more(&format!("\", \" {call}")))
            }
            Shape::Json { list: List::Bare, .. } | Shape::Channels => call.to_owned(),
            Shape::Json { list: List::Never, .. } => {
                let one = format!("{open} \"\\n\" {call} \"\\n\" {close}");
                format!("{one} {}", more(&format!("\"\\n\" {one}")))
            }
            Shape::Tagged(tags) if tags.end == format.close => {
                let one = format!("{open} {call}");
                format!("{one} {}", more(&format!("\"\\n\" {one}")))
            }
            Shape::Tagged(_) => {
                let one = format!("{open} \"\\n\" {call} \"\\n\" {close}");
                format!("{one} {}", more(&format!("\"\\n\" {one}")))
            }
            // The number that such a format gives each call is that of the first.
            Shape::Named { prefix, .. } if !prefix.is_empty() => format!("{begin} {open} {call} {close} {end}"),
            Shape::Named { .. } | Shape::BareWords { .. } => {
                let one = format!("{open} {call} {close}");
                format!("{begin} {one} {} {end}", more(&one))
            }
        }
    }

    /// Names and schemas of the functions that may be called.
    fn functions(&self) -> Result<Vec<(String, Value)>, TextError> {
        let failure = |at: String, reason: &str| TextError::Messages { at, reason: reason.to_owned() };
        let tools = self.tools.as_array().ok_or_else(|| failure("tools".into(), "must be a list of tools"))?;
        let mut functions = Vec::new();
        for (index, tool) in tools.iter().enumerate() {
            let function = tool.get("function").unwrap_or(tool);
            let name = function.get("name").and_then(Value::as_str).filter(|name| is_name(name));
            let at = || format!("tools[{index}].function.name");
            let name = name.ok_or_else(|| failure(at(), "must be a name of letters, digits, `_`, `-` and `.`"))?;
            if matches!(self.choice, ToolChoice::Function(only) if only != name) {
                continue;
            }
            let schema = function.get("parameters").filter(|schema| !schema.is_null());
            let schema = schema.cloned().unwrap_or_else(|| json!({"type": "object"}));
            functions.push((name.to_owned(), with_bounded_space(schema)));
        }
        match self.choice {
            _ if !functions.is_empty() => Ok(functions),
            ToolChoice::Function(name) => Err(failure("tool_choice".into(), &format!("there is no tool `{name}`"))),
            ToolChoice::Required => Err(failure("tools".into(), "must not be empty if a call is required")),
        }
    }
}

/// A call between tags: parameters in the order of the schema, those that are not required may be left out.
fn tagged(tags: &Tags, name: &str, schema: &Value, marks: &Marks) -> String {
    let lines = |value: String| if tags.value[0].is_empty() { format!("\"\\n\" {value} \"\\n\"") } else { value };
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let parameters = schema["properties"].as_object().into_iter().flatten().map(|(key, schema)| {
        let value = match (&schema["type"], schema["enum"].as_array()) {
            (_, Some(values)) if values.iter().all(Value::is_string) && !values.is_empty() => {
                let values: Vec<String> = values.iter().filter_map(Value::as_str).map(quote).collect();
                format!("({})", values.join(" | "))
            }
            (Value::String(kind), _) if kind == "string" => PLAIN.to_owned(),
            _ => format!("%json {}", with_bounded_space(schema.clone())),
        };
        let [open, close] = tags.key.map(|mark| marks.spell(mark));
        let [before, after] = tags.value.map(|mark| marks.spell(mark));
        let between = if tags.value[0].is_empty() { "" } else { "\"\\n\"" };
        let item = format!("{open} {} {close} {between} {before} {} {after} \"\\n\"", quote(key), lines(value));
        if required.contains(&key.as_str()) { item } else { format!("({item})?") }
    });
    let parameters: Vec<String> = parameters.collect();
    let [open, close] = tags.name.map(|mark| marks.spell(mark));
    let line = if tags.name[1] == "\n" { "" } else { "\"\\n\"" };
    format!("{open} {} {close} {line} {} {}", quote(name), parameters.join(" "), marks.spell(tags.end))
}

/// The tokens that stand for markers.
struct Marks(Vec<(String, u32)>);

impl Marks {
    fn new(tokenizer: &Tokenizer) -> Marks {
        let named = tokenizer.reserved_tokens().into_iter().filter_map(|id| {
            let name = std::str::from_utf8(tokenizer.token_bytes(id)?).ok()?;
            (name.len() > 2).then(|| (name.to_owned(), id))
        });
        let mut named: Vec<(String, u32)> = named.collect();
        named.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        Marks(named)
    }

    /// A text as a sequence of tokens, where it has their names, and strings.
    fn spell(&self, text: &str) -> String {
        let (mut items, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(character) = rest.chars().next() {
            if let Some((name, id)) = self.0.iter().find(|(name, _)| rest.starts_with(name.as_str())) {
                if !plain.is_empty() {
                    items.push(quote(&std::mem::take(&mut plain)));
                }
                items.push(format!("<[{id}]>"));
                rest = &rest[name.len()..];
            } else {
                plain.push(character);
                rest = &rest[character.len_utf8()..];
            }
        }
        if !plain.is_empty() {
            items.push(quote(&plain));
        }
        items.join(" ")
    }
}
