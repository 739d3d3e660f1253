//! `/v1/completions`.

use std::sync::Arc;

use cascadia_engine::Sampling;
use cascadia_text::Piece;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::chat::StreamOptions;
use super::report::{finish_reason, text_logprobs, usage};
use crate::answer::event_stream::{EventWriter, Frames, Framing};
use crate::answer::{Answer, AnswerEnd, Delta, Usage};
use crate::error::{ApiError, ErrorShape};
use crate::model::frontend::{ModelFrontend, unix_seconds};
use crate::protocols::Protocol;
use crate::request::prompts::Prompts;
use crate::request::sampling::{self, HasSampling, SamplingField, SamplingValues, WithSampling};
use crate::request::validate::{Given, RawRequest};

/// How many tokens an answer has when the request does not say.
const DEFAULT_TOKENS: i64 = 16;

/// A request to continue a text.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct CompletionRequest {
    /// The model's name or `default`, alone or with an adapter: `model:adapter`.
    model: Option<String>,
    /// A text, a list of tokens, or up to 16 of either.
    #[schema(value_type = Object)]
    prompt: Prompts,
    /// Report the log-probability of every token, and those of this many most likely tokens at each position.
    #[schema(minimum = 0, maximum = 20)]
    logprobs: Option<i64>,
    /// The most tokens of an answer; 16 by default.
    #[schema(minimum = 1, maximum = 1048576)]
    max_tokens: Option<i64>,
    /// Answers to each prompt.
    #[schema(minimum = 1, maximum = 8)]
    n: Option<i64>,
    /// Answers to choose the best from; not supported beyond `n`.
    #[schema(minimum = 1, maximum = 8)]
    best_of: Option<i64>,
    /// Repeat the prompt before the answer; not supported.
    echo: Option<bool>,
    /// Text after the answer; not supported.
    suffix: Option<String>,
    /// Stream the answer.
    stream: Option<bool>,
    /// What else a stream contains.
    stream_options: Option<StreamOptions>,
    /// `high`, `normal` or `low`.
    priority: Option<String>,
    /// `auto`, `default`, `flex` or `priority`.
    service_tier: Option<String>,
}

impl HasSampling for CompletionRequest {
    const FIELDS: &'static [SamplingField] = sampling::ALL;
}

/// What is remembered of a request until its answer is complete.
pub(crate) struct CompletionProtocol {
    frontend: Arc<ModelFrontend>,
    model: String,
    id: String,
    created: u64,
    is_streamed: bool,
    with_usage: bool,
    with_logprobs: bool,
    /// Characters sent so far, by answer.
    offsets: Vec<usize>,
}

impl Protocol for CompletionProtocol {
    type Body = WithSampling<CompletionRequest>;

    fn read(request: Self::Body, frontend: &Arc<ModelFrontend>) -> Result<(RawRequest, CompletionProtocol), ApiError> {
        let WithSampling { body, sampling } = request;
        let choices = usize::try_from(body.n.unwrap_or(1)).unwrap_or(1);
        let protocol = CompletionProtocol {
            frontend: Arc::clone(frontend),
            model: frontend.answering(body.model.as_deref()),
            id: "cmpl-".to_owned(),
            created: unix_seconds(),
            is_streamed: body.stream == Some(true),
            with_usage: StreamOptions::wants_usage(body.stream_options.as_ref()),
            with_logprobs: body.logprobs.is_some(),
            offsets: vec![0; body.prompt.0.len().saturating_mul(choices.min(8))],
        };
        Ok((raw_request(body, sampling)?, protocol))
    }

    fn set_id(&mut self, id: &str) {
        self.id.push_str(id);
    }

    fn framing(&self) -> Option<Framing> {
        self.is_streamed.then_some(Framing::Events)
    }

    fn response(self, answers: Vec<Answer>, used: Usage) -> Value {
        let choices = answers.into_iter().enumerate().map(|(index, answer)| {
            let logprobs = match self.with_logprobs {
                true => text_logprobs(self.frontend.model.text.tokenizer(), &answer.logprobs, 0),
                false => Value::Null,
            };
            let reason = finish_reason(&answer.end);
            json!({"index": index, "text": answer.text, "logprobs": logprobs, "finish_reason": reason})
        });
        let mut object = self.object(choices.collect());
        object["usage"] = usage(used);
        object
    }

    fn event_writer(self) -> Box<dyn EventWriter> {
        Box::new(self)
    }
}

impl CompletionProtocol {
    fn object(&self, choices: Vec<Value>) -> Value {
        json!({
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }

    fn chunk(&self, choice: Value) -> Value {
        let mut object = self.object(vec![choice]);
        if self.with_usage {
            object["usage"] = Value::Null;
        }
        object
    }
}

impl EventWriter for CompletionProtocol {
    fn delta(&mut self, delta: Delta, out: &mut Frames) {
        let tokenizer = self.frontend.model.text.tokenizer();
        let offset = &mut self.offsets[delta.choice];
        let logprobs = match &delta.logprob {
            Some(logprob) => text_logprobs(tokenizer, std::slice::from_ref(logprob), *offset),
            None => Value::Null,
        };
        let text: String = delta.pieces.into_iter().filter_map(text_of).collect();
        *offset += text.chars().count();
        let choice = json!({"index": delta.choice, "text": text, "logprobs": logprobs, "finish_reason": null});
        out.object(&self.chunk(choice));
    }

    fn ended(&mut self, choice: usize, end: &AnswerEnd, out: &mut Frames) {
        let reason = finish_reason(end);
        out.object(&self.chunk(json!({"index": choice, "text": "", "logprobs": null, "finish_reason": reason})));
    }

    fn done(&mut self, used: Usage, out: &mut Frames) {
        if self.with_usage {
            let mut object = self.object(Vec::new());
            object["usage"] = usage(used);
            out.object(&object);
        }
        out.text(None, "[DONE]");
    }

    fn failed(&mut self, error: &ApiError, out: &mut Frames) {
        out.object(&error.body(ErrorShape::OpenAi));
    }
}

/// A text that is continued has no other pieces.
fn text_of(piece: Piece) -> Option<String> {
    match piece {
        Piece::Content(text) => Some(text),
        _ => None,
    }
}

fn raw_request(body: CompletionRequest, sampling: SamplingValues) -> Result<RawRequest, ApiError> {
    if body.echo == Some(true) {
        return Err(ApiError::unsupported("echo", "echo is not supported; prepend the prompt yourself"));
    }
    if body.suffix.is_some_and(|suffix| !suffix.is_empty()) {
        return Err(ApiError::unsupported("suffix", "suffix is not supported; send only the text before it"));
    }
    if body.best_of.is_some_and(|best| best != body.n.unwrap_or(1)) {
        return Err(ApiError::unsupported("best_of", "best_of is not supported beyond n; ask for n answers"));
    }
    Ok(RawRequest {
        model: body.model,
        sources: body.prompt.0,
        choices: body.n,
        max_tokens: Given::new("max_tokens", Some(body.max_tokens.unwrap_or(DEFAULT_TOKENS))),
        defaults: Sampling::default(),
        sampling,
        alternatives: Given::new("logprobs", body.logprobs),
        priority: body.priority,
        service_tier: body.service_tier,
        format: None,
    })
}
