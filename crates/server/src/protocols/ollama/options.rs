//! What the two ways to generate text with Ollama's clients share: options, `think`, and the last object of an answer.

use std::time::Instant;

use cascadia_engine::{FinishReason, Sampling};
use cascadia_text::OutputFormat;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::answer::{AnswerEnd, TokenLogprob, ToolCall, Usage};
use crate::error::ApiError;
use crate::model::frontend::{Caller, ModelFrontend};
use crate::model::keep_alive::KeepAlive;
use crate::protocols::openai::report::chat_logprobs;
use crate::protocols::tool_calls::arguments_object;
use crate::request::bounded::Json;
use crate::request::reasoning::{EFFORT, SWITCHES, effort_variables, switched};
use crate::request::sampling::{
    FREQUENCY_PENALTY, HasSampling, MIN_P, PRESENCE_PENALTY, REPETITION_PENALTY, SEED, STOP, SamplingField,
    TEMPERATURE, TOP_K, TOP_P, WithSampling, not_offered,
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
        not_offered("mirostat", &["0", "0.0"]),
        not_offered("typical_p", &["1", "1.0"]),
        not_offered("tfs_z", &["1", "1.0"]),
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

/// What `think` asks the template for: whether, or how much, the model reasons before it answers.
pub(crate) fn think_variables(
    think: Option<&Json>,
    frontend: &ModelFrontend,
) -> Result<Option<Map<String, Value>>, ApiError> {
    let wrong = |message: &str| ApiError::unsupported("think", format!("think: {message}"));
    let has_switch = SWITCHES.iter().any(|name| frontend.template_has(name));
    let reasons = frontend.reply_format.reasons();
    match think.map(|think| &think.0) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(false)) if reasons && !has_switch => {
            Err(wrong("this model always reasons, and cannot be told not to; leave it out"))
        }
        Some(Value::Bool(false)) => Ok(Some(switched(false))),
        Some(_) if !reasons && !has_switch && !frontend.template_has(EFFORT) => {
            Err(wrong("this model does not reason before it answers; leave it out"))
        }
        Some(Value::Bool(true)) => Ok(Some(switched(true))),
        Some(Value::String(effort)) => effort_variables("think", effort).map(Some),
        Some(_) => Err(ApiError::invalid("think", "think must be true, false, or how much: low, medium or high")),
    }
}

/// How many alternatives of each token are reported, if log-probabilities are.
pub(crate) fn alternatives(logprobs: Option<bool>, top: Option<i64>) -> Result<Option<Given<i64>>, ApiError> {
    match (logprobs, top) {
        (Some(true), top) => Ok(Given::new("top_logprobs", Some(top.unwrap_or(0)))),
        (_, None | Some(0)) => Ok(None),
        (_, Some(_)) => Err(ApiError::invalid("top_logprobs", "top_logprobs needs logprobs: true")),
    }
}

/// An object with the log-probabilities of its tokens, where they were asked for.
pub(crate) fn with_logprobs(mut object: Value, frontend: &ModelFrontend, logprobs: &[TokenLogprob]) -> Value {
    if !logprobs.is_empty() {
        object["logprobs"] = chat_logprobs(frontend.model.text.tokenizer(), logprobs)["content"].take();
    }
    object
}

/// Refuses pictures.
pub(crate) fn check_images(images: Option<&Json>) -> Result<(), ApiError> {
    match images.is_none_or(|images| images.0.is_null() || images.0 == json!([])) {
        true => Ok(()),
        false => Err(ApiError::unsupported("images", "images are not supported; this model reads only text")),
    }
}

/// Why a request without text is answered at once: it asks that the model is loaded, or that it is not.
pub(crate) fn load_reason(keep_alive: Option<KeepAlive>) -> &'static str {
    let unloads = keep_alive.is_some_and(|KeepAlive(time)| time.is_some_and(|time| time.is_zero()));
    if unloads { "unload" } else { "load" }
}

/// Lets the model stay in memory for as long as a request says, if its sender may change what is served.
pub(crate) fn keep(
    frontend: &ModelFrontend,
    keep_alive: Option<&Json>,
    caller: &Caller,
) -> Result<Option<KeepAlive>, ApiError> {
    let time = match keep_alive.map(|time| &time.0) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Number(seconds)) => seconds.as_f64().and_then(KeepAlive::of_seconds),
        Some(Value::String(text)) => KeepAlive::parse(text),
        Some(_) => None,
    };
    let wrong = "keep_alive is a time such as 30s, 5m or 1h, or a number of seconds; for ever if it is negative";
    let time = time.ok_or_else(|| ApiError::invalid("keep_alive", wrong))?;
    if caller.is_admin {
        frontend.keep(time);
    }
    Ok(Some(time))
}

/// The last object of an answer: why it ended, what it cost, and how long that took. What is neither prompt nor answer, such as
/// waiting for a turn, counts as loading.
pub(crate) fn last(mut object: Value, end: Option<&AnswerEnd>, used: Usage, begin: Instant) -> Value {
    let total = begin.elapsed();
    let loading = total.saturating_sub(used.prompt_time).saturating_sub(used.answer_time);
    let [total, loading, prompt, answer] =
        [total, loading, used.prompt_time, used.answer_time].map(|time| time.as_nanos() as u64);
    let reason = match end.map(|end| end.finish) {
        None | Some(FinishReason::Stop | FinishReason::Cancelled) => "stop",
        Some(FinishReason::Length | FinishReason::Deadline) => "length",
    };
    let more = json!({
        "done": true,
        "done_reason": reason,
        "total_duration": total,
        "load_duration": loading,
        "prompt_eval_count": used.prompt,
        "prompt_eval_duration": prompt,
        "eval_count": used.generated,
        "eval_duration": answer,
    });
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
    object
}
