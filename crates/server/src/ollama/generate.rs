//! `/api/generate`.

use std::sync::Arc;
use std::time::Instant;

use cascadia_text::Piece;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::clock;
use super::options::{self, SampledOptions, last, output_format};
use crate::answer::{Answer, Delta, End, Usage};
use crate::bounded::Json;
use crate::error::{ApiError, Shape};
use crate::model_frontend::ModelFrontend;
use crate::protocol::Protocol;
use crate::stream::{EventWriter, Frames, Framing};
use crate::validate::{Chat, RawRequest, Source};

/// A request for an answer to a prompt.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct GenerateRequest {
    /// The model's name, or `default`.
    model: Option<String>,
    /// The prompt.
    prompt: Option<String>,
    /// What the model is told before it.
    system: Option<String>,
    /// Use the prompt as it stands, without the model's chat template.
    raw: Option<bool>,
    /// Text after the answer; not supported.
    suffix: Option<String>,
    /// Another chat template; not supported.
    template: Option<String>,
    /// The form of the answer.
    #[schema(value_type = Option<Object>)]
    format: Option<Json>,
    /// How it is generated.
    options: Option<SampledOptions>,
    /// Send the answer while it is made; unless it says false.
    stream: Option<bool>,
}

/// What is remembered of a request until its answer is complete.
pub(crate) struct GenerateProtocol {
    desk: Arc<ModelFrontend>,
    streams: bool,
    begin: Instant,
    end: Option<End>,
}

impl Protocol for GenerateProtocol {
    type Body = GenerateRequest;

    fn read(body: GenerateRequest, desk: &Arc<ModelFrontend>) -> Result<(RawRequest, GenerateProtocol), ApiError> {
        let format = output_format(body.format.as_ref())?;
        for (name, text) in [("suffix", &body.suffix), ("template", &body.template)] {
            if text.as_ref().is_some_and(|text| !text.is_empty()) {
                return Err(ApiError::unsupported(name, format!("{name} is not supported; leave it out")));
            }
        }
        let prompt = body.prompt.unwrap_or_default();
        let is_raw = body.raw == Some(true) || desk.model.text.template().is_none();
        let source = if is_raw { Source::Text(prompt) } else { conversation(body.system, &prompt) };
        let wanted = RawRequest { model: body.model, sources: vec![source], format, ..options::wanted(body.options) };
        let streams = body.stream != Some(false);
        Ok((wanted, GenerateProtocol { desk: Arc::clone(desk), streams, begin: Instant::now(), end: None }))
    }

    fn framing(&self) -> Option<Framing> {
        self.streams.then_some(Framing::Lines)
    }

    fn whole(self, answers: Vec<Answer>, used: Usage) -> Value {
        match answers.into_iter().next() {
            Some(answer) => last(self.object(&answer.text, &answer.thoughts), Some(&answer.end), used, self.begin),
            None => last(self.object("", ""), None, used, self.begin),
        }
    }

    fn voice(self) -> Box<dyn EventWriter> {
        Box::new(self)
    }
}

impl GenerateProtocol {
    fn object(&self, text: &str, thoughts: &str) -> Value {
        let (model, created) = (&self.desk.model.name, clock::now());
        let mut object = json!({"model": model, "created_at": created, "response": text, "done": false});
        if !thoughts.is_empty() {
            object["thinking"] = thoughts.into();
        }
        object
    }
}

impl EventWriter for GenerateProtocol {
    fn said(&mut self, said: Delta, out: &mut Frames) {
        for piece in said.pieces {
            match piece {
                Piece::Content(text) => out.object(&self.object(&text, "")),
                Piece::Reasoning(text) => out.object(&self.object("", &text)),
                // This door knows no functions, so there are no calls.
                Piece::ToolStart { .. } | Piece::ToolArguments { .. } => {}
            }
        }
    }

    fn ended(&mut self, _choice: usize, end: &End, _out: &mut Frames) {
        self.end = Some(end.clone());
    }

    fn done(&mut self, used: Usage, out: &mut Frames) {
        out.object(&last(self.object("", ""), self.end.as_ref(), used, self.begin));
    }

    fn failed(&mut self, error: &ApiError, out: &mut Frames) {
        out.object(&error.body(Shape::Ollama));
    }
}

fn conversation(system: Option<String>, prompt: &str) -> Source {
    let mut messages = Vec::new();
    messages.extend(system.map(|system| json!({"role": "system", "content": system})));
    messages.push(json!({"role": "user", "content": prompt}));
    Source::Chat(Chat { messages, ..Chat::default() })
}
