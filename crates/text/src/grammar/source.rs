//! The checks on a format's source before anything is built from it.

use llguidance::api::TopLevelGrammar;
use llguidance::regex_to_lark;
use serde_json::{Value, json};

use super::{MAX_CHOICES, MAX_FORMAT_BYTES, MAX_FORMAT_DEPTH, OutputFormat};
use crate::TextError;

/// White space between the parts of JSON. It is bounded because small models, left alone with "any white space", write
/// nothing else until they run out of tokens.
const JSON_SPACE: &str = r"[ \n\r\t]{1,40}";

/// A format whose size and depth are within bounds.
pub(super) struct Source {
    /// What tells this format from all others.
    pub(super) key: String,
    pub(super) grammar: TopLevelGrammar,
}

impl Source {
    pub(super) fn new(format: &OutputFormat) -> Result<Source, TextError> {
        let text = match format {
            OutputFormat::JsonObject => String::new(),
            OutputFormat::JsonSchema(schema) => {
                check_depth(json_depth(schema))?;
                schema.to_string()
            }
            OutputFormat::Regex(expression) => expression.clone(),
            OutputFormat::Choice(choices) => choice_terminal(choices)?,
            OutputFormat::Lark(grammar) => grammar.clone(),
        };
        check_size("the source of the output format", text.len(), MAX_FORMAT_BYTES, "bytes")?;
        let grammar = match format {
            OutputFormat::JsonObject => json_grammar(json!({"type": "object"})),
            OutputFormat::JsonSchema(schema) => json_grammar(schema.clone()),
            OutputFormat::Regex(expression) => {
                check_depth(expression_depth(expression))?;
                let expression = regex_to_lark(without_anchors(expression), "dw");
                TopLevelGrammar::from_lark(format!("start: /{expression}/"))
            }
            OutputFormat::Choice(_) => TopLevelGrammar::from_lark(format!("start: CHOICE\nCHOICE: {text}")),
            OutputFormat::Lark(_) => {
                check_depth(lark_depth(&text))?;
                TopLevelGrammar::from_lark(text.clone())
            }
        };
        Ok(Source { key: format!("{}\n{text}", format.name()), grammar })
    }
}

fn json_grammar(mut schema: Value) -> TopLevelGrammar {
    if let Some(fields) = schema.as_object_mut() {
        fields.insert("x-guidance".into(), json!({"whitespace_pattern": JSON_SPACE}));
    }
    TopLevelGrammar::from_json_schema(schema)
}

/// The choices as one terminal, so that none hides another that begins alike.
fn choice_terminal(choices: &[String]) -> Result<String, TextError> {
    check_size("the list of choices", choices.len(), MAX_CHOICES, "entries")?;
    if choices.is_empty() {
        let reason = "it is empty; give at least one choice".to_owned();
        return Err(TextError::OutputFormat { format: "list of choices", reason });
    }
    let quoted: Vec<String> = choices.iter().map(|choice| quote(choice)).collect();
    Ok(quoted.join(" | "))
}

/// A text as a string of Lark, which is a string of JSON without a bare DEL.
pub(crate) fn quote(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// Matching is always of the whole answer, which is what people mean by `^…$`.
fn without_anchors(expression: &str) -> &str {
    let expression = expression.strip_prefix('^').unwrap_or(expression);
    match expression.strip_suffix('$') {
        Some(rest) if rest.chars().rev().take_while(|&character| character == '\\').count() % 2 == 0 => rest,
        _ => expression,
    }
}

fn json_depth(value: &Value) -> usize {
    let (mut deepest, mut stack) = (0, vec![(value, 0)]);
    while let Some((value, depth)) = stack.pop() {
        deepest = deepest.max(depth);
        match value {
            Value::Array(items) => stack.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(fields) => stack.extend(fields.values().map(|field| (field, depth + 1))),
            _ => {}
        }
    }
    deepest
}

/// Deepest nesting of groups in a regular expression.
fn expression_depth(expression: &str) -> usize {
    let (mut depth, mut deepest, mut in_class) = (0_usize, 0, false);
    let mut characters = expression.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => drop(characters.next()),
            '[' => in_class = true,
            ']' => in_class = false,
            '(' if !in_class => depth += 1,
            ')' if !in_class => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// Deepest nesting of brackets in a grammar, outside its strings. Comments and expressions count like everything else:
/// what is wrongly refused for them is of no use to anyone.
fn lark_depth(grammar: &str) -> usize {
    let (mut depth, mut deepest, mut in_string) = (0_usize, 0, false);
    let mut characters = grammar.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => drop(characters.next()),
            '\n' => in_string = false,
            '"' => in_string = !in_string,
            '(' | '[' | '{' if !in_string => depth += 1,
            ')' | ']' | '}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

fn check_depth(depth: usize) -> Result<(), TextError> {
    check_size("the nesting of the output format", depth, MAX_FORMAT_DEPTH, "levels")
}

fn check_size(what: &'static str, size: usize, limit: usize, unit: &'static str) -> Result<(), TextError> {
    if size > limit { Err(TextError::TooLarge { what, size, limit, unit }) } else { Ok(()) }
}
