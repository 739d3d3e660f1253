//! `/api/generate`.

use std::sync::Arc;
use std::time::Instant;

use cascadia_text::Piece;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::clock;
use super::options::{self, SampledOptions, last, output_format, with_logprobs};
use crate::answer::event_stream::{EventWriter, Frames, Framing};
use crate::answer::{Answer, AnswerEnd, Delta, TokenLogprob, Usage};
use crate::error::{ApiError, ErrorShape};
use crate::model::frontend::ModelFrontend;
use crate::protocols::{Protocol, RequestContext};
use crate::request::bounded::Json;
use crate::request::validate::{Chat, Infill, RawRequest, Source};

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
    /// Text after the answer, for models that fill in the middle.
    suffix: Option<String>,
    /// Pictures; this server reads only text.
    #[schema(value_type = Option<Vec<Object>>)]
    images: Option<Json>,
    /// Whether the model reasons before it answers, or how much: `low`, `medium` or `high`.
    #[schema(value_type = Option<Object>)]
    think: Option<Json>,
    /// Report the log-probability of every token.
    logprobs: Option<bool>,
    /// And those of this many most likely tokens at each position.
    #[schema(minimum = 0, maximum = 20)]
    top_logprobs: Option<i64>,
    /// How long the model stays in memory, if it is one of several; needs a key with `admin`. Without a prompt, nothing is
    /// generated.
    #[schema(value_type = Option<Object>)]
    keep_alive: Option<Json>,
    /// What an earlier answer returned; not supported, because it is never returned.
    #[schema(value_type = Option<Vec<Object>>)]
    context: Option<Json>,
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
    frontend: Arc<ModelFrontend>,
    model: String,
    /// Why nothing is generated, if so.
    at_once: Option<&'static str>,
    is_streamed: bool,
    begin: Instant,
    /// Of tokens whose text is not sent yet.
    logprobs: Vec<TokenLogprob>,
    end: Option<AnswerEnd>,
}

impl Protocol for GenerateProtocol {
    type Body = GenerateRequest;

    fn read(body: GenerateRequest, context: &RequestContext) -> Result<(RawRequest, GenerateProtocol), ApiError> {
        let frontend = &context.frontend;
        let format = output_format(body.format.as_ref())?;
        options::check_images(body.images.as_ref())?;
        let has_context = body.context.as_ref().is_some_and(|context| !context.0.is_null() && context.0 != json!([]));
        for (name, is_given) in
            [("template", body.template.as_ref().is_some_and(|text| !text.is_empty())), ("context", has_context)]
        {
            if is_given {
                return Err(ApiError::unsupported(name, format!("{name} is not supported; leave it out")));
            }
        }
        let (prompt, suffix) = (body.prompt.unwrap_or_default(), body.suffix.filter(|text| !text.is_empty()));
        let is_empty = prompt.is_empty() && suffix.is_none();
        let keep_alive = options::keep(frontend, body.keep_alive.as_ref(), &context.caller)?;
        let at_once = is_empty.then(|| options::load_reason(keep_alive));
        let is_raw = body.raw == Some(true) || frontend.model.text.template().is_none();
        let source = match suffix {
            Some(suffix) => Source::Infill(Infill { prefix: prompt, suffix }),
            None if is_raw => Source::Text(prompt),
            None => {
                let variables = options::think_variables(body.think.as_ref(), frontend)?;
                Source::Chat(Box::new(Chat { variables, ..conversation(body.system, &prompt) }))
            }
        };
        let request = RawRequest {
            sources: vec![source],
            format,
            alternatives: options::alternatives(body.logprobs, body.top_logprobs)?,
            ..options::raw_request(body.options)
        };
        let protocol = GenerateProtocol {
            frontend: Arc::clone(frontend),
            model: frontend.answering(body.model.as_deref()),
            at_once,
            is_streamed: body.stream != Some(false),
            begin: Instant::now(),
            logprobs: Vec::new(),
            end: None,
        };
        Ok((RawRequest { model: body.model, ..request }, protocol))
    }

    fn at_once(&self) -> Option<Value> {
        let mut object = self.object("", "");
        (object["done"], object["done_reason"]) = (true.into(), self.at_once?.into());
        Some(object)
    }

    fn framing(&self) -> Option<Framing> {
        self.is_streamed.then_some(Framing::Lines)
    }

    fn response(self, answers: Vec<Answer>, used: Usage) -> Value {
        match answers.into_iter().next() {
            Some(answer) => {
                let object = self.object(&answer.text, &answer.reasoning);
                let object = with_logprobs(object, &self.frontend, &answer.logprobs);
                last(object, Some(&answer.end), used, self.begin)
            }
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
        // Sent with the next text, if this token completes none.
        self.logprobs.extend(delta.logprob);
        for piece in delta.pieces {
            let object = match piece {
                Piece::Content(text) => self.object(&text, ""),
                Piece::Reasoning(text) => self.object("", &text),
                // This protocol knows no functions, so there are no calls.
                Piece::ToolStart { .. } | Piece::ToolArguments { .. } => continue,
            };
            let logprobs = std::mem::take(&mut self.logprobs);
            out.object(&with_logprobs(object, &self.frontend, &logprobs));
        }
    }

    fn ended(&mut self, _choice: usize, end: &AnswerEnd, _out: &mut Frames) {
        self.end = Some(end.clone());
    }

    fn done(&mut self, used: Usage, out: &mut Frames) {
        let object = with_logprobs(self.object("", ""), &self.frontend, &self.logprobs);
        out.object(&last(object, self.end.as_ref(), used, self.begin));
    }

    fn failed(&mut self, error: &ApiError, out: &mut Frames) {
        out.object(&error.body(ErrorShape::Ollama));
    }
}

fn conversation(system: Option<String>, prompt: &str) -> Chat {
    let mut messages = Vec::new();
    messages.extend(system.map(|system| json!({"role": "system", "content": system})));
    messages.push(json!({"role": "user", "content": prompt}));
    Chat { messages, ..Chat::default() }
}
