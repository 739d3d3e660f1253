//! Options of a request and the last object of an answer in Ollama's format.

use std::time::Instant;

use cascadia_engine::{FinishReason, Sampling};
use cascadia_text::OutputFormat;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::answer::{AnswerEnd, ToolCall, Usage};
use crate::error::ApiError;
use crate::protocols::tool_calls::arguments_object;
use crate::request::bounded::Json;
use crate::request::sampling::{
    FREQUENCY_PENALTY, HasSampling, MIN_P, PRESENCE_PENALTY, REPETITION_PENALTY, SEED, STOP, SamplingField,
    TEMPERATURE, TOP_K, TOP_P, WithSampling,
};
use crate::request::validate::{Given, RawRequest};

/// All options of a request.
pub(crate) type SampledOptions = WithSampling<Options>;

/// How an answer is generated; other settings are ignored.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct Options {
    /// The most tokens of the answer; -1 and -2 fill the context.
    #[schema(minimum = -2, maximum = 1048576)]
    num_predict: Option<i64>,
}

impl HasSampling for Options {
    const FIELDS: &'static [SamplingField] = &[
        TEMPERATURE.described("0 always takes the most likely token; 0.8 by default."),
        TOP_K.described("Keep this many of the most likely tokens; 40 by default."),
        TOP_P.described("Keep the most likely tokens up to this probability; 0.9 by default."),
        MIN_P,
        REPETITION_PENALTY.named("repeat_penalty"),
        PRESENCE_PENALTY,
        FREQUENCY_PENALTY,
        SEED,
        STOP,
    ];
}

/// The options in the validator's terms.
pub(crate) fn raw_request(options: Option<SampledOptions>) -> RawRequest {
    let WithSampling { body, sampling } = options.unwrap_or_default();
    let limit = body.num_predict.filter(|count| ![-1, -2].contains(count));
    RawRequest {
        max_tokens: Given::new("num_predict", limit),
        defaults: Sampling { temperature: 0.8, top_k: 40, top_p: 0.9, ..Sampling::default() },
        sampling,
        ..RawRequest::default()
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

/// A message of the assistant. The arguments of calls are objects.
pub(crate) fn message(text: &str, reasoning: &str, calls: &[ToolCall]) -> Value {
    let mut message = json!({"role": "assistant", "content": text});
    if !reasoning.is_empty() {
        message["thinking"] = reasoning.into();
    }
    if !calls.is_empty() {
        let written = calls
            .iter()
            .map(|call| json!({"function": {"name": call.name, "arguments": arguments_object(&call.arguments)}}));
        message["tool_calls"] = written.collect();
    }
    message
}

/// The last object of an answer: why it ended and what it cost. Phases are not timed apart; see `/metrics`.
pub(crate) fn last(mut object: Value, end: Option<&AnswerEnd>, used: Usage, begin: Instant) -> Value {
    let nanoseconds = begin.elapsed().as_nanos() as u64;
    let reason = match end.map(|end| end.finish) {
        None | Some(FinishReason::Stop | FinishReason::Cancelled) => "stop",
        Some(FinishReason::Length | FinishReason::Deadline) => "length",
    };
    let more = json!({
        "done": true,
        "done_reason": reason,
        "total_duration": nanoseconds,
        "load_duration": 0,
        "prompt_eval_count": used.prompt,
        "prompt_eval_duration": 0,
        "eval_count": used.generated,
        "eval_duration": nanoseconds,
    });
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
    object
}
