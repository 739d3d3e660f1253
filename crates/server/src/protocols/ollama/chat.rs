//! `/api/chat`.

use std::sync::Arc;
use std::time::Instant;

use cascadia_text::Piece;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::clock;
use super::options::{self, SampledOptions, last, message, output_format, with_logprobs};
use crate::answer::event_stream::{EventWriter, Frames, Framing};
use crate::answer::{Answer, AnswerEnd, Delta, TokenLogprob, ToolCall, Usage};
use crate::error::{ApiError, ErrorShape};
use crate::model::frontend::ModelFrontend;
use crate::protocols::openai::message::{MAX_MESSAGES, Message};
use crate::protocols::{Protocol, RequestContext};
use crate::request::bounded::{Json, List};
use crate::request::tools::{MAX_TOOLS, check_tools};
use crate::request::validate::{Chat, RawRequest, Source};

/// A request for an answer to a conversation.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct OllamaChatRequest {
    /// The model's name or `default`, alone or with an adapter: `model:adapter`.
    model: Option<String>,
    /// The conversation so far.
    #[serde(default)]
    #[schema(value_type = Vec<Message>, max_items = 4096)]
    messages: List<Message, MAX_MESSAGES>,
    /// Functions the model may call.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<List<Json, MAX_TOOLS>>,
    /// The format of the answer.
    #[schema(value_type = Option<Object>)]
    format: Option<Json>,
    /// How it is generated.
    options: Option<SampledOptions>,
    /// Stream the answer, unless false.
    stream: Option<bool>,
    /// Whether the model reasons before it answers, or how much: `low`, `medium` or `high`.
    #[schema(value_type = Option<Object>)]
    think: Option<Json>,
    /// Report the log-probability of every token.
    logprobs: Option<bool>,
    /// And those of this many most likely tokens at each position.
    #[schema(minimum = 0, maximum = 20)]
    top_logprobs: Option<i64>,
    /// How long the model stays in memory, if it is one of several; needs a key with `admin`. Without messages, nothing is
    /// generated.
    #[schema(value_type = Option<Object>)]
    keep_alive: Option<Json>,
}

/// What is remembered of a request until its answer is complete.
pub(crate) struct OllamaChatProtocol {
    frontend: Arc<ModelFrontend>,
    model: String,
    /// Why nothing is generated, if so.
    at_once: Option<&'static str>,
    is_streamed: bool,
    begin: Instant,
    calls: Vec<ToolCall>,
    /// Of tokens whose text is not sent yet.
    logprobs: Vec<TokenLogprob>,
    end: Option<AnswerEnd>,
}

impl Protocol for OllamaChatProtocol {
    type Body = OllamaChatRequest;

    fn read(body: OllamaChatRequest, context: &RequestContext) -> Result<(RawRequest, OllamaChatProtocol), ApiError> {
        let frontend = &context.frontend;
        let format = output_format(body.format.as_ref())?;
        let messages = body.messages.0.into_iter().map(Message::into_value).collect::<Result<Vec<_>, _>>()?;
        let keep_alive = options::keep(frontend, body.keep_alive.as_ref(), &context.caller)?;
        let at_once = messages.is_empty().then(|| options::load_reason(keep_alive));
        let tools = body.tools.map(|tools| tools.0).unwrap_or_default();
        let tools = check_tools(tools.into_iter().map(|tool| tool.0).collect())?;
        let model = frontend.answering(body.model.as_deref());
        let variables = options::think_variables(body.think.as_ref(), frontend)?;
        let mut chat = Chat { messages, tools, variables, ..Chat::default() };
        // As Ollama does: a last message of the assistant is how the answer begins.
        chat.continue_last();
        let request = RawRequest {
            model: body.model,
            sources: vec![Source::Chat(Box::new(chat))],
            format,
            alternatives: options::alternatives(body.logprobs, body.top_logprobs)?,
            ..options::raw_request(body.options)
        };
        let is_streamed = body.stream != Some(false);
        let protocol = OllamaChatProtocol {
            frontend: Arc::clone(frontend),
            model,
            at_once,
            is_streamed,
            begin: Instant::now(),
            calls: Vec::new(),
            logprobs: Vec::new(),
            end: None,
        };
        Ok((request, protocol))
    }

    fn at_once(&self) -> Option<Value> {
        let mut object = self.object(message("", "", &[]));
        (object["done"], object["done_reason"]) = (true.into(), self.at_once?.into());
        Some(object)
    }

    fn framing(&self) -> Option<Framing> {
        self.is_streamed.then_some(Framing::Lines)
    }

    fn response(self, answers: Vec<Answer>, used: Usage) -> Value {
        match answers.into_iter().next() {
            Some(answer) => {
                let message = message(&answer.text, &answer.reasoning, &answer.tool_calls);
                let object = with_logprobs(self.object(message), &self.frontend, &answer.logprobs);
                last(object, Some(&answer.end), used, self.begin)
            }
            None => last(self.object(message("", "", &[])), None, used, self.begin),
        }
    }

    fn event_writer(self) -> Box<dyn EventWriter> {
        Box::new(self)
    }
}

impl OllamaChatProtocol {
    fn object(&self, message: Value) -> Value {
        json!({"model": self.model, "created_at": clock::now(), "message": message, "done": false})
    }
}

impl OllamaChatProtocol {
    /// Sends a piece of the message with the log-probabilities of its tokens.
    fn write(&mut self, message: Value, out: &mut Frames) {
        let logprobs = std::mem::take(&mut self.logprobs);
        out.object(&with_logprobs(self.object(message), &self.frontend, &logprobs));
    }
}

impl EventWriter for OllamaChatProtocol {
    fn delta(&mut self, delta: Delta, out: &mut Frames) {
        // Sent with the next text, if this token completes none.
        self.logprobs.extend(delta.logprob);
        for piece in delta.pieces {
            match piece {
                Piece::Content(text) => self.write(message(&text, "", &[]), out),
                Piece::Reasoning(text) => self.write(message("", &text, &[]), out),
                Piece::ToolStart { name, .. } => self.calls.push(ToolCall { name, arguments: String::new() }),
                Piece::ToolArguments { fragment, .. } => {
                    if let Some(call) = self.calls.last_mut() {
                        call.arguments.push_str(&fragment);
                    }
                }
            }
        }
    }

    fn ended(&mut self, _choice: usize, end: &AnswerEnd, out: &mut Frames) {
        if !self.calls.is_empty() {
            self.write(message("", "", &self.calls), out);
        }
        self.end = Some(end.clone());
    }

    fn done(&mut self, used: Usage, out: &mut Frames) {
        let object = with_logprobs(self.object(message("", "", &[])), &self.frontend, &self.logprobs);
        out.object(&last(object, self.end.as_ref(), used, self.begin));
    }

    fn failed(&mut self, error: &ApiError, out: &mut Frames) {
        out.object(&error.body(ErrorShape::Ollama));
    }
}
