//! The source of a format as a grammar of `llguidance`.

use llguidance::api::TopLevelGrammar;
use llguidance::regex_to_lark;
use serde_json::{Value, json};

use super::{MAX_CHOICES, MAX_FORMAT_BYTES, OutputFormat, measure};
use crate::TextError;

/// White space between the parts of JSON: a space, or a line break with indentation. Small models that are left alone with
/// "any white space" write little else until they run out of tokens.
const JSON_SPACE: &str = r" |\n[ ]{0,16}|\n\t{1,4}";

/// Lets the model choose the tokens of texts that leave no other choice.
const NO_FORCING: &str = "\n%llguidance {\"no_forcing\": true}\n";

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
                measure::check_schema(schema)?;
                schema.to_string()
            }
            OutputFormat::Regex(text) | OutputFormat::Lark(text) => text.clone(),
            OutputFormat::Choice(choices) => choice_terminal(choices)?,
        };
        measure::within("the source of the output format", text.len(), MAX_FORMAT_BYTES, "bytes")?;
        let grammar = match format {
            OutputFormat::JsonObject => json_grammar(json!({"type": "object"})),
            OutputFormat::JsonSchema(schema) => json_grammar(schema.clone()),
            OutputFormat::Regex(expression) => {
                measure::check_expression(expression)?;
                let expression = regex_to_lark(without_anchors(expression), "dw");
                TopLevelGrammar::from_lark(format!("start: /{expression}/"))
            }
            OutputFormat::Choice(_) => TopLevelGrammar::from_lark(format!("start: CHOICE\nCHOICE: {text}")),
            OutputFormat::Lark(grammar) => {
                measure::check_lark(grammar)?;
                // Behind the grammar, where it is the last word and moves no line that an error may name.
                let end = if measure::may_force_too_much(grammar) { NO_FORCING } else { "" };
                TopLevelGrammar::from_lark(format!("{text}{end}"))
            }
        };
        Ok(Source { key: format!("{}\n{text}", format.name()), grammar })
    }
}

fn json_grammar(schema: Value) -> TopLevelGrammar {
    TopLevelGrammar::from_json_schema(with_bounded_space(schema))
}

/// A schema with our bound on white space.
pub(crate) fn with_bounded_space(mut schema: Value) -> Value {
    if let Some(fields) = schema.as_object_mut() {
        fields.insert("x-guidance".into(), json!({"whitespace_pattern": JSON_SPACE}));
    }
    schema
}

/// The choices as one terminal, so that none hides another that begins alike.
fn choice_terminal(choices: &[String]) -> Result<String, TextError> {
    measure::within("the list of choices", choices.len(), MAX_CHOICES, "entries")?;
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
