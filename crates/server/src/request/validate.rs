//! The one validator: requests of every protocol become the same valid request here.

use cascadia_engine::service::Priority;
use cascadia_engine::{AdapterHandle, Sampling};
use cascadia_text::OutputFormat;
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::request::sampling::{SamplingSettings, SamplingValues};

/// The most answers to all prompts of a request together.
const MAX_ANSWERS: usize = 256;

/// A numeric field and the values it may have, both ends included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    name: &'static str,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

/// Ranges of numeric fields. The OpenAPI document has the same, and a test compares the two.
pub(crate) mod range {
    use super::Range;

    pub(crate) const CHOICES: Range = Range::new("n", 1.0, 8.0);
    /// More than fits into the context is cut to what fits.
    pub(crate) const MAX_TOKENS: Range = Range::new("max_tokens", 1.0, 1_048_576.0);
    /// The same where a client may ask about nothing but the prompt.
    pub(crate) const MAX_TOKENS_OR_NONE: Range = Range::new("max_tokens", 0.0, 1_048_576.0);
    pub(crate) const ALTERNATIVES: Range = Range::new("top_logprobs", 0.0, 20.0);
}

impl Range {
    pub(crate) const fn new(name: &'static str, least: f64, most: f64) -> Range {
        Range { name, least, most }
    }

    /// The same range for a field with another name.
    pub(crate) const fn named(self, name: &'static str) -> Range {
        Range { name, ..self }
    }

    /// The value, when it is in the range.
    pub(crate) fn check(self, value: f64) -> Result<f64, ApiError> {
        // A comparison with NaN is false, so NaN fails here too.
        if value >= self.least && value <= self.most {
            return Ok(value);
        }
        let Range { name, least, most } = self;
        Err(ApiError::invalid(name, format!("{name} is {value}; it must be between {least} and {most}")))
    }

    /// The value, when it is in the range.
    pub(crate) fn check_whole(self, value: i64) -> Result<i64, ApiError> {
        self.check(value as f64).map(|_| value)
    }
}

/// A value and the name under which a protocol knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given<T> {
    pub(crate) name: &'static str,
    pub(crate) value: T,
}

impl<T> Given<T> {
    /// A field of a request, when it has a value.
    pub(crate) fn new(name: &'static str, value: Option<T>) -> Option<Given<T>> {
        value.map(|value| Given { name, value })
    }
}

/// What a prompt is made from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// A conversation for the model's template.
    Chat(Box<Chat>),
    /// A text as it is.
    Text(String),
    /// Tokens of this model.
    Tokens(Vec<u32>),
    /// A text whose middle is to be filled in.
    Infill(Infill),
}

/// What stands before and after the answer.
#[derive(Clone, Debug)]
pub(crate) struct Infill {
    pub(crate) prefix: String,
    pub(crate) suffix: String,
}

/// A conversation in the form that templates read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chat {
    pub(crate) messages: Vec<Value>,
    pub(crate) tools: Option<Value>,
    /// More variables of the template.
    pub(crate) variables: Option<Map<String, Value>>,
    /// Which function the answer must call.
    pub(crate) must_call: MustCall,
    /// An answer ends with its first call.
    pub(crate) one_call: bool,
    pub(crate) beginning: Beginning,
}

/// How the prompt of a conversation leads to its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// It opens a new message of the assistant.
    #[default]
    Opened,
    /// It ends with the last message.
    NotOpened,
    /// The answer continues this text of the assistant.
    Continued(String),
}

impl Chat {
    /// Makes the last message the beginning of the answer, if it is a text of the assistant; `false` if it is not.
    pub(crate) fn continue_last(&mut self) -> bool {
        let text = match self.messages.last() {
            Some(last) if last["role"] == "assistant" && last["tool_calls"].is_null() => last["content"].as_str(),
            _ => None,
        };
        let Some(text) = text.filter(|_| self.messages.len() > 1) else { return false };
        self.beginning = Beginning::Continued(text.to_owned());
        self.messages.pop();
        true
    }
}

/// Which function an answer must call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum MustCall {
    #[default]
    Nothing,
    Any,
    Function(String),
}

/// A request in the common form, not validated yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawRequest {
    pub(crate) model: Option<String>,
    pub(crate) sources: Vec<Source>,
    pub(crate) choices: Option<i64>,
    pub(crate) max_tokens: Option<Given<i64>>,
    /// Whether answers may be asked for that have no tokens.
    pub(crate) may_be_empty: bool,
    /// Sampling settings that the request does not set.
    pub(crate) defaults: Sampling,
    pub(crate) sampling: SamplingValues,
    /// Report log-probabilities, and those of this many alternatives.
    pub(crate) alternatives: Option<Given<i64>>,
    /// Report how likely the tokens of the prompt are, and those of this many alternatives.
    pub(crate) prompt_alternatives: Option<Given<i64>>,
    pub(crate) priority: Option<String>,
    pub(crate) service_tier: Option<String>,
    /// The format that the answer must have.
    pub(crate) format: Option<OutputFormat>,
}

/// A request whose every value is in range.
#[derive(Clone, Debug)]
pub(crate) struct ValidRequest {
    /// What the model is changed with.
    pub(crate) adapter: Option<AdapterHandle>,
    pub(crate) sources: Vec<Source>,
    /// Answers to each prompt.
    pub(crate) choices: usize,
    /// `None` fills the context.
    pub(crate) max_tokens: Option<u32>,
    pub(crate) settings: SamplingSettings,
    pub(crate) alternatives: Option<u32>,
    pub(crate) prompt_alternatives: Option<u32>,
    pub(crate) priority: Option<Priority>,
    pub(crate) format: Option<OutputFormat>,
}

impl RawRequest {
    /// Checks every field. The adapter is what `model` names.
    pub(crate) fn check(self, adapter: Option<AdapterHandle>) -> Result<ValidRequest, ApiError> {
        let choices = whole(range::CHOICES, self.choices)?.unwrap_or(1) as usize;
        if self.sources.is_empty() || self.sources.len().saturating_mul(choices) > MAX_ANSWERS {
            let count = self.sources.len();
            let message =
                format!("{count} prompts with n = {choices}; a request may have 1 to {MAX_ANSWERS} answers in total");
            return Err(ApiError::invalid("n", message));
        }
        let mut settings = self.sampling.check(self.defaults)?;
        let format = match (self.format, settings.format.take()) {
            (Some(_), Some((name, _))) => {
                return Err(ApiError::invalid(name, format!("{name} is a second format of the answer; send one")));
            }
            (first, second) => first.or(second.map(|(_, format)| format)),
        };
        let may_not_end = if settings.ignore_end { Some("ignore_eos") } else { None };
        if let Some(name) =
            may_not_end.or((settings.min_tokens > 0).then_some("min_tokens")).filter(|_| format.is_some())
        {
            let message =
                format!("{name} cannot be kept together with a format, which says itself where an answer ends");
            return Err(ApiError::invalid(name, message));
        }
        let lengths = if self.may_be_empty { range::MAX_TOKENS_OR_NONE } else { range::MAX_TOKENS };
        Ok(ValidRequest {
            adapter,
            choices,
            max_tokens: given(lengths, self.max_tokens)?.map(|count| count as u32),
            settings,
            alternatives: given(range::ALTERNATIVES, self.alternatives)?.map(|count| count as u32),
            prompt_alternatives: given(range::ALTERNATIVES, self.prompt_alternatives)?.map(|count| count as u32),
            priority: priority(self.priority.as_deref(), self.service_tier.as_deref())?,
            format,
            sources: self.sources,
        })
    }
}

fn whole(range: Range, value: Option<i64>) -> Result<Option<i64>, ApiError> {
    value.map(|value| range.check_whole(value)).transpose()
}

fn given(range: Range, given: Option<Given<i64>>) -> Result<Option<i64>, ApiError> {
    given.map(|given| range.named(given.name).check_whole(given.value)).transpose()
}

/// `priority` is our own field; `service_tier` is OpenAI's for the same.
fn priority(priority: Option<&str>, tier: Option<&str>) -> Result<Option<Priority>, ApiError> {
    let by_tier = match tier {
        None | Some("auto" | "default" | "standard_only" | "scale") => None,
        Some("flex") => Some(Priority::Low),
        Some("priority") => Some(Priority::High),
        Some(other) => {
            let message = format!("service_tier is `{}`; use auto, default, flex or priority", shortened(other));
            return Err(ApiError::invalid("service_tier", message));
        }
    };
    match priority.map(named_priority) {
        None => Ok(by_tier),
        Some(Some(priority)) => Ok(Some(priority)),
        Some(None) => {
            let message = format!("priority is `{}`; use high, normal or low", shortened(priority.unwrap_or_default()));
            Err(ApiError::invalid("priority", message))
        }
    }
}

/// The priority with this name.
pub(crate) fn named_priority(name: &str) -> Option<Priority> {
    match name {
        "low" => Some(Priority::Low),
        "normal" => Some(Priority::Normal),
        "high" => Some(Priority::High),
        _ => None,
    }
}

/// A client's own text in a message to it, kept short.
pub(crate) fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(64).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_have_two_names() {
        let check = |name: Option<&str>, tier: Option<&str>, expected: Result<Option<Priority>, &str>| {
            let found = priority(name, tier).map_err(|error| error.param.unwrap_or_default());
            assert_eq!(found, expected.map_err(str::to_owned), "{name:?} {tier:?}");
        };
        check(None, None, Ok(None));
        check(None, Some("auto"), Ok(None));
        check(None, Some("flex"), Ok(Some(Priority::Low)));
        check(Some("high"), Some("flex"), Ok(Some(Priority::High)));
        check(Some("urgent"), None, Err("priority"));
        check(None, Some("gold"), Err("service_tier"));
    }
}
