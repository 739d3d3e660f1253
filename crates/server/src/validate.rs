//! The one validator: whatever door a request came through, it becomes the same checked request here.

use cascadia_engine::Sampling;
use cascadia_engine::service::Priority;
use cascadia_text::{OutputFormat, StopStrings};
use serde_json::{Map, Value};

use crate::error::ApiError;

/// The most stop strings of a request.
pub(crate) const MAX_STOPS: usize = 16;
/// The most entries of `logit_bias`.
pub(crate) const MAX_BIASES: usize = 1024;
/// The most answers to all prompts of a request together.
const MAX_ANSWERS: usize = 16;

/// A numeric field and the values it may have, both ends included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    name: &'static str,
    least: f64,
    most: f64,
}

/// What a numeric field may be. The OpenAPI document says the same, and a test compares the two.
pub(crate) mod range {
    use super::Range;

    const fn range(name: &'static str, least: f64, most: f64) -> Range {
        Range { name, least, most }
    }

    pub(crate) const TEMPERATURE: Range = range("temperature", 0.0, 2.0);
    pub(crate) const TOP_P: Range = range("top_p", 0.0, 1.0);
    pub(crate) const MIN_P: Range = range("min_p", 0.0, 1.0);
    /// -1 and 0 both keep all tokens: clients differ.
    pub(crate) const TOP_K: Range = range("top_k", -1.0, 2_097_152.0);
    pub(crate) const PRESENCE_PENALTY: Range = range("presence_penalty", -2.0, 2.0);
    pub(crate) const FREQUENCY_PENALTY: Range = range("frequency_penalty", -2.0, 2.0);
    pub(crate) const REPETITION_PENALTY: Range = range("repetition_penalty", 0.1, 10.0);
    pub(crate) const LOGIT_BIAS: Range = range("logit_bias", -100.0, 100.0);
    pub(crate) const CHOICES: Range = range("n", 1.0, 8.0);
    /// More than fits into the context is cut to what fits.
    pub(crate) const MAX_TOKENS: Range = range("max_tokens", 1.0, 1_048_576.0);
    pub(crate) const ALTERNATIVES: Range = range("top_logprobs", 0.0, 20.0);
}

impl Range {
    /// The same range of a field that another protocol calls differently.
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

/// A number and the name under which a protocol knows it.
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
    Chat(Chat),
    /// A text as it stands.
    Text(String),
    /// Tokens of this model.
    Tokens(Vec<u32>),
}

/// A conversation in the form that templates read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chat {
    pub(crate) messages: Vec<Value>,
    pub(crate) tools: Option<Value>,
    /// More variables of the template.
    pub(crate) variables: Option<Map<String, Value>>,
    /// Which function the answer has to call.
    pub(crate) must_call: MustCall,
}

/// Which function an answer has to call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum MustCall {
    #[default]
    Nothing,
    Any,
    Function(String),
}

/// A request as a door understood it, nothing checked yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawRequest {
    pub(crate) model: Option<String>,
    pub(crate) sources: Vec<Source>,
    pub(crate) choices: Option<i64>,
    pub(crate) max_tokens: Option<Given<i64>>,
    /// What holds where the request says nothing.
    pub(crate) defaults: Sampling,
    pub(crate) temperature: Option<f64>,
    pub(crate) top_p: Option<f64>,
    pub(crate) top_k: Option<i64>,
    pub(crate) min_p: Option<f64>,
    pub(crate) repetition_penalty: Option<Given<f64>>,
    pub(crate) presence_penalty: Option<f64>,
    pub(crate) frequency_penalty: Option<f64>,
    pub(crate) logit_bias: Vec<(String, f64)>,
    pub(crate) seed: Option<i64>,
    pub(crate) stop: Vec<String>,
    /// Report chances, and of this many alternatives.
    pub(crate) alternatives: Option<Given<i64>>,
    pub(crate) priority: Option<String>,
    pub(crate) service_tier: Option<String>,
    /// What the answer must look like.
    pub(crate) format: Option<OutputFormat>,
}

/// A request whose every value is in range.
#[derive(Clone, Debug)]
pub(crate) struct ValidRequest {
    pub(crate) sources: Vec<Source>,
    /// Answers to each prompt.
    pub(crate) choices: usize,
    /// `None` takes all the room there is.
    pub(crate) max_tokens: Option<u32>,
    /// Without `seed`, which is made up where the request has none.
    pub(crate) sampling: Sampling,
    pub(crate) seed: Option<u64>,
    pub(crate) stop: Vec<String>,
    pub(crate) alternatives: Option<u32>,
    pub(crate) priority: Option<Priority>,
    pub(crate) format: Option<OutputFormat>,
}

impl RawRequest {
    /// Checks every field.
    pub(crate) fn check(self) -> Result<ValidRequest, ApiError> {
        let choices = whole(range::CHOICES, self.choices)?.unwrap_or(1) as usize;
        if self.sources.is_empty() || self.sources.len().saturating_mul(choices) > MAX_ANSWERS {
            let count = self.sources.len();
            let message = format!("{count} prompts with n = {choices}; ask for 1 to {MAX_ANSWERS} answers in all");
            return Err(ApiError::invalid("n", message));
        }
        Ok(ValidRequest {
            choices,
            max_tokens: given(range::MAX_TOKENS, self.max_tokens)?.map(|count| count as u32),
            sampling: self.sampling()?,
            // The sign is only a way to write the same 64 bits.
            seed: self.seed.map(|seed| seed as u64),
            alternatives: given(range::ALTERNATIVES, self.alternatives)?.map(|count| count as u32),
            priority: priority(self.priority.as_deref(), self.service_tier.as_deref())?,
            stop: stops(self.stop)?,
            format: self.format,
            sources: self.sources,
        })
    }

    fn sampling(&self) -> Result<Sampling, ApiError> {
        let defaults = self.defaults.clone();
        let or = |range: Range, value: Option<f64>, default: f32| match value {
            Some(value) => range.check(value).map(|value| value as f32),
            None => Ok(default),
        };
        let penalty = self.repetition_penalty.map(|given| given.value);
        let repetition = self.repetition_penalty.map_or("repetition_penalty", |given| given.name);
        let repetition = range::REPETITION_PENALTY.named(repetition);
        Ok(Sampling {
            temperature: or(range::TEMPERATURE, self.temperature, defaults.temperature)?,
            top_k: whole(range::TOP_K, self.top_k)?.map_or(defaults.top_k, |k| u32::try_from(k).unwrap_or(0)),
            // 0 keeps the most likely token alone, which the sampler spells as the least number above it.
            top_p: or(range::TOP_P, self.top_p, defaults.top_p)?.max(f32::MIN_POSITIVE),
            min_p: or(range::MIN_P, self.min_p, defaults.min_p)?,
            repetition_penalty: or(repetition, penalty, defaults.repetition_penalty)?,
            presence_penalty: or(range::PRESENCE_PENALTY, self.presence_penalty, defaults.presence_penalty)?,
            frequency_penalty: or(range::FREQUENCY_PENALTY, self.frequency_penalty, defaults.frequency_penalty)?,
            logit_bias: biases(&self.logit_bias)?,
            seed: 0,
        })
    }
}

fn whole(range: Range, value: Option<i64>) -> Result<Option<i64>, ApiError> {
    value.map(|value| range.check_whole(value)).transpose()
}

fn given(range: Range, given: Option<Given<i64>>) -> Result<Option<i64>, ApiError> {
    given.map(|given| range.named(given.name).check_whole(given.value)).transpose()
}

fn biases(entries: &[(String, f64)]) -> Result<Vec<(u32, f32)>, ApiError> {
    let check = |(token, bias): &(String, f64)| match token.parse::<u32>() {
        Ok(token) => Ok((token, range::LOGIT_BIAS.check(*bias)? as f32)),
        Err(_) => Err(ApiError::invalid("logit_bias", format!("`{}` is no token number", shortened(token)))),
    };
    entries.iter().map(check).collect()
}

fn stops(stops: Vec<String>) -> Result<Vec<String>, ApiError> {
    if stops.len() > MAX_STOPS {
        let message = format!("stop has {} entries; send at most {MAX_STOPS}", stops.len());
        return Err(ApiError::invalid("stop", message));
    }
    StopStrings::new(&stops).map_err(|error| ApiError::invalid("stop", error.to_string()))?;
    Ok(stops)
}

/// `priority` is ours; `service_tier` is how OpenAI's clients say the same.
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

/// A client's own words in a message to it, kept short.
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

    #[test]
    fn biases_name_tokens() {
        assert_eq!(biases(&[("7".to_owned(), -100.0)]).unwrap(), [(7, -100.0)]);
        for (token, bias) in [("x", 0.0), ("-1", 0.0), ("4294967296", 0.0), ("7", 100.5), ("7", f64::NAN)] {
            assert!(biases(&[(token.to_owned(), bias)]).is_err(), "{token} {bias}");
        }
    }
}
