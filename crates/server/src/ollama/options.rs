//! Settings of a request, and how answers end, as Ollama's clients know them.

use std::time::Instant;

use cascadia_engine::{FinishReason, Sampling};
use cascadia_text::OutputFormat;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::answer::{Call, End, Usage};
use crate::bounded::{Json, OneOrMany};
use crate::calls;
use crate::error::ApiError;
use crate::validate::{Given, MAX_STOPS, RawRequest};

/// How an answer is generated; other settings are ignored.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct Options {
    /// 0 always takes the most likely token; 0.8 by default.
    #[schema(minimum = 0, maximum = 2)]
    temperature: Option<f64>,
    /// Keep this many of the most likely tokens; 40 by default.
    #[schema(minimum = -1, maximum = 2097152)]
    top_k: Option<i64>,
    /// Keep the most likely tokens up to this probability; 0.9 by default.
    #[schema(minimum = 0, maximum = 1)]
    top_p: Option<f64>,
    /// Keep tokens at least this likely relative to the most likely one.
    #[schema(minimum = 0, maximum = 1)]
    min_p: Option<f64>,
    /// Makes tokens of prompt and answer less likely; 1 is off.
    #[schema(minimum = 0.1, maximum = 10)]
    repeat_penalty: Option<f64>,
    /// Makes tokens of the answer less likely.
    #[schema(minimum = -2, maximum = 2)]
    presence_penalty: Option<f64>,
    /// Makes tokens of the answer less likely each time they occur.
    #[schema(minimum = -2, maximum = 2)]
    frequency_penalty: Option<f64>,
    /// Same seed, same answer.
    seed: Option<i64>,
    /// The most tokens of the answer; -1 and -2 take all the room there is.
    #[schema(minimum = -2, maximum = 1048576)]
    num_predict: Option<i64>,
    /// Texts that end the answer, up to 16.
    #[schema(value_type = Option<Object>)]
    stop: Option<OneOrMany<String, MAX_STOPS>>,
}

impl Options {
    /// The settings in the validator's terms.
    pub(crate) fn wanted(self) -> RawRequest {
        let limit = self.num_predict.filter(|count| ![-1, -2].contains(count));
        RawRequest {
            max_tokens: Given::new("num_predict", limit),
            defaults: Sampling { temperature: 0.8, top_k: 40, top_p: 0.9, ..Sampling::default() },
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: Given::new("repeat_penalty", self.repeat_penalty),
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            seed: self.seed,
            stop: self.stop.map(OneOrMany::into_vec).unwrap_or_default(),
            ..RawRequest::default()
        }
    }
}

/// What `format` asks for: `json`, or a JSON schema.
pub(crate) fn output_format(format: Option<&Json>) -> Result<Option<OutputFormat>, ApiError> {
    match format.map(|format| &format.0) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(word)) if word.is_empty() => Ok(None),
        Some(Value::String(word)) if word == "json" => Ok(Some(OutputFormat::JsonObject)),
        Some(schema @ Value::Object(_)) => Ok(Some(OutputFormat::JsonSchema(schema.clone()))),
        Some(_) => Err(ApiError::invalid("format", "format must be `json` or a JSON schema")),
    }
}

/// A message of the assistant. Calls are whole here: their arguments are an object.
pub(crate) fn message(text: &str, thoughts: &str, calls: &[Call]) -> Value {
    let mut message = json!({"role": "assistant", "content": text});
    if !thoughts.is_empty() {
        message["thinking"] = thoughts.into();
    }
    if !calls.is_empty() {
        let written = calls
            .iter()
            .map(|call| json!({"function": {"name": call.name, "arguments": calls::arguments(&call.arguments)}}));
        message["tool_calls"] = written.collect();
    }
    message
}

/// The last object of an answer: why it ended and what it cost. One clock stands for all: stages are in `/metrics`.
pub(crate) fn last(mut object: Value, end: Option<&End>, used: Usage, begin: Instant) -> Value {
    let nanoseconds = begin.elapsed().as_nanos() as u64;
    let reason = match end.map(|end| end.finish) {
        None | Some(FinishReason::Stop | FinishReason::Cancelled) => "stop",
        Some(FinishReason::Length | FinishReason::ContextFull | FinishReason::Deadline) => "length",
    };
    let more = json!({
        "done": true,
        "done_reason": reason,
        "total_duration": nanoseconds,
        "load_duration": 0,
        "prompt_eval_count": used.prompt,
        "prompt_eval_duration": 0,
        "eval_count": used.answer,
        "eval_duration": nanoseconds,
    });
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
    object
}
