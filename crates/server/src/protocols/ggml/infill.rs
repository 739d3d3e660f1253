//! `/infill`: what fills the gap in a text, as editors ask for it.

use cascadia_engine::{FinishReason, Sampling};
use cascadia_text::Piece;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::answer::event_stream::{EventWriter, Frames, Framing};
use crate::answer::{Answer, AnswerEnd, Delta, Usage};
use crate::error::{ApiError, ErrorShape};
use crate::protocols::{Protocol, RequestContext};
use crate::request::bounded::{Json, List};
use crate::request::sampling::{
    FREQUENCY_PENALTY, HasSampling, LOGIT_BIAS, MIN_P, PRESENCE_PENALTY, REPETITION_PENALTY, SEED, STOP, SamplingField,
    TEMPERATURE, TOP_K, TOP_P, WithSampling,
};
use crate::request::validate::{Given, Infill, RawRequest, Source};

/// The most pieces of other files.
const MAX_EXTRA: usize = 256;

/// A text with a gap.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct InfillRequest {
    /// The model's name or `default`, alone or with an adapter: `model:adapter`.
    model: Option<String>,
    /// The text before the gap.
    input_prefix: String,
    /// The text after the gap.
    input_suffix: String,
    /// What was written in the gap already.
    prompt: Option<String>,
    /// Pieces of other files, each with `text` and `filename`, which come before the prefix.
    #[schema(value_type = Option<Vec<Object>>)]
    input_extra: Option<List<Json, MAX_EXTRA>>,
    /// The most tokens of the answer; -1 fills the context.
    #[schema(minimum = -1, maximum = 1048576)]
    n_predict: Option<i64>,
    /// Stream the answer.
    stream: Option<bool>,
}

impl HasSampling for InfillRequest {
    const FIELDS: &'static [SamplingField] = &[
        TEMPERATURE,
        TOP_K,
        TOP_P,
        MIN_P,
        REPETITION_PENALTY.named("repeat_penalty"),
        PRESENCE_PENALTY,
        FREQUENCY_PENALTY,
        LOGIT_BIAS,
        SEED,
        STOP,
    ];
}

/// What is remembered of a request until its answer is complete.
pub(crate) struct InfillProtocol {
    model: String,
    is_streamed: bool,
    end: Option<AnswerEnd>,
}

impl Protocol for InfillProtocol {
    type Body = WithSampling<InfillRequest>;

    fn read(request: Self::Body, context: &RequestContext) -> Result<(RawRequest, InfillProtocol), ApiError> {
        let WithSampling { body, sampling } = request;
        let mut prefix = String::new();
        for Json(extra) in body.input_extra.into_iter().flat_map(|extra| extra.0) {
            let Some(text) = extra["text"].as_str() else {
                return Err(ApiError::invalid("input_extra", "a piece of input_extra has no text; leave it out"));
            };
            prefix.push_str(text);
            prefix.push('\n');
        }
        prefix.push_str(&body.input_prefix);
        prefix.push_str(&body.prompt.unwrap_or_default());
        let protocol = InfillProtocol {
            model: context.frontend.answering(body.model.as_deref()),
            is_streamed: body.stream == Some(true),
            end: None,
        };
        let request = RawRequest {
            model: body.model,
            sources: vec![Source::Infill(Infill { prefix, suffix: body.input_suffix })],
            max_tokens: Given::new("n_predict", body.n_predict.filter(|count| *count != -1)),
            may_be_empty: true,
            defaults: Sampling::default(),
            sampling,
            ..RawRequest::default()
        };
        Ok((request, protocol))
    }

    fn framing(&self) -> Option<Framing> {
        self.is_streamed.then_some(Framing::Events)
    }

    fn response(self, answers: Vec<Answer>, used: Usage) -> Value {
        match answers.into_iter().next() {
            Some(answer) => self.last(&answer.text, Some(&answer.end), used),
            None => self.last("", None, used),
        }
    }

    fn event_writer(self) -> Box<dyn EventWriter> {
        Box::new(self)
    }
}

impl InfillProtocol {
    /// The object that ends an answer.
    fn last(&self, text: &str, end: Option<&AnswerEnd>, used: Usage) -> Value {
        let kind = match end.map(|end| (end.finish, end.stop)) {
            Some((FinishReason::Length | FinishReason::Deadline, _)) => "limit",
            Some((_, Some(_))) => "word",
            Some((_, None)) | None => "eos",
        };
        json!({
            "index": 0,
            "content": text,
            "model": self.model,
            "stop": true,
            "stop_type": kind,
            "tokens_evaluated": used.prompt,
            "tokens_cached": used.cached,
            "tokens_predicted": used.generated,
        })
    }
}

impl EventWriter for InfillProtocol {
    fn delta(&mut self, delta: Delta, out: &mut Frames) {
        for piece in delta.pieces {
            if let Piece::Content(text) = piece {
                out.object(&json!({"index": 0, "content": text, "stop": false}));
            }
        }
    }

    fn ended(&mut self, _choice: usize, end: &AnswerEnd, _out: &mut Frames) {
        self.end = Some(end.clone());
    }

    fn done(&mut self, used: Usage, out: &mut Frames) {
        out.object(&self.last("", self.end.as_ref(), used));
    }

    fn failed(&mut self, error: &ApiError, out: &mut Frames) {
        out.object(&error.body(ErrorShape::OpenAi));
    }
}
