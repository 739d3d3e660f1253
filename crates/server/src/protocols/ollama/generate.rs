//! `/api/generate`.

use std::sync::Arc;
use std::time::Instant;

use cascadia_text::Piece;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::clock;
use super::options::{self, SampledOptions, last, output_format};
use crate::answer::event_stream::{EventWriter, Frames, Framing};
use crate::answer::{Answer, AnswerEnd, Delta, Usage};
use crate::error::{ApiError, ErrorShape};
use crate::model::frontend::ModelFrontend;
use crate::protocols::Protocol;
use crate::request::bounded::Json;
use crate::request::validate::{Chat, RawRequest, Source};

/// A request for an answer to a prompt.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct GenerateRequest {
    /// The model's name or `default`, alone or with an adapter: `model:adapter`.
    model: Option<String>,
    /// The prompt.
    prompt: Option<String>,
    /// Instructions before the prompt.
    system: Option<String>,
    /// Use the prompt as it is, without the model's chat template.
    raw: Option<bool>,
    /// Text after the answer; not supported.
    suffix: Option<String>,
    /// Another chat template; not supported.
    template: Option<String>,
    /// The format of the answer.
    #[schema(value_type = Option<Object>)]
    format: Option<Json>,
    /// How it is generated.
    options: Option<SampledOptions>,
    /// Stream the answer, unless false.
    stream: Option<bool>,
}

/// What is remembered of a request until its answer is complete.
pub(crate) struct GenerateProtocol {
    model: String,
    is_streamed: bool,
    begin: Instant,
    end: Option<AnswerEnd>,
}

impl Protocol for GenerateProtocol {
    type Body = GenerateRequest;

    fn read(body: GenerateRequest, frontend: &Arc<ModelFrontend>) -> Result<(RawRequest, GenerateProtocol), ApiError> {
        let format = output_format(body.format.as_ref())?;
        for (name, text) in [("suffix", &body.suffix), ("template", &body.template)] {
            if text.as_ref().is_some_and(|text| !text.is_empty()) {
                return Err(ApiError::unsupported(name, format!("{name} is not supported; leave it out")));
            }
        }
        let prompt = body.prompt.unwrap_or_default();
        let is_raw = body.raw == Some(true) || frontend.model.text.template().is_none();
        let source = if is_raw { Source::Text(prompt) } else { conversation(body.system, &prompt) };
        let model = frontend.answering(body.model.as_deref());
        let request =
            RawRequest { model: body.model, sources: vec![source], format, ..options::raw_request(body.options) };
        let is_streamed = body.stream != Some(false);
        Ok((request, GenerateProtocol { model, is_streamed, begin: Instant::now(), end: None }))
    }

    fn framing(&self) -> Option<Framing> {
        self.is_streamed.then_some(Framing::Lines)
    }

    fn response(self, answers: Vec<Answer>, used: Usage) -> Value {
        match answers.into_iter().next() {
            Some(answer) => last(self.object(&answer.text, &answer.reasoning), Some(&answer.end), used, self.begin),
            None => last(self.object("", ""), None, used, self.begin),
        }
    }

    fn event_writer(self) -> Box<dyn EventWriter> {
        Box::new(self)
    }
}

impl GenerateProtocol {
    fn object(&self, text: &str, reasoning: &str) -> Value {
        let (model, created) = (&self.model, clock::now());
        let mut object = json!({"model": model, "created_at": created, "response": text, "done": false});
        if !reasoning.is_empty() {
            object["thinking"] = reasoning.into();
        }
        object
    }
}

impl EventWriter for GenerateProtocol {
    fn delta(&mut self, delta: Delta, out: &mut Frames) {
        for piece in delta.pieces {
            match piece {
                Piece::Content(text) => out.object(&self.object(&text, "")),
                Piece::Reasoning(text) => out.object(&self.object("", &text)),
                // This protocol knows no functions, so there are no calls.
                Piece::ToolStart { .. } | Piece::ToolArguments { .. } => {}
            }
        }
    }

    fn ended(&mut self, _choice: usize, end: &AnswerEnd, _out: &mut Frames) {
        self.end = Some(end.clone());
    }

    fn done(&mut self, used: Usage, out: &mut Frames) {
        out.object(&last(self.object("", ""), self.end.as_ref(), used, self.begin));
    }

    fn failed(&mut self, error: &ApiError, out: &mut Frames) {
        out.object(&error.body(ErrorShape::Ollama));
    }
}

fn conversation(system: Option<String>, prompt: &str) -> Source {
    let mut messages = Vec::new();
    messages.extend(system.map(|system| json!({"role": "system", "content": system})));
    messages.push(json!({"role": "user", "content": prompt}));
    Source::Chat(Chat { messages, ..Chat::default() })
}
