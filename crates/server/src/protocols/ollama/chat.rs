//! `/api/chat`.

use std::sync::Arc;
use std::time::Instant;

use cascadia_text::Piece;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::clock;
use super::options::{self, SampledOptions, last, message, output_format};
use crate::answer::event_stream::{EventWriter, Frames, Framing};
use crate::answer::{Answer, AnswerEnd, Delta, ToolCall, Usage};
use crate::error::{ApiError, ErrorShape};
use crate::model::frontend::ModelFrontend;
use crate::protocols::Protocol;
use crate::protocols::openai::message::{MAX_MESSAGES, Message};
use crate::request::bounded::{Json, List};
use crate::request::tools::{MAX_TOOLS, check_tools};
use crate::request::validate::{Chat, RawRequest, Source};

/// A request for an answer to a conversation.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct OllamaChatRequest {
    /// The model's name or `default`, alone or with an adapter: `model:adapter`.
    model: Option<String>,
    /// The conversation so far.
    #[schema(value_type = Vec<Message>, min_items = 1, max_items = 4096)]
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
}

/// What is remembered of a request until its answer is complete.
pub(crate) struct OllamaChatProtocol {
    model: String,
    is_streamed: bool,
    begin: Instant,
    calls: Vec<ToolCall>,
    end: Option<AnswerEnd>,
}

impl Protocol for OllamaChatProtocol {
    type Body = OllamaChatRequest;

    fn read(
        body: OllamaChatRequest,
        frontend: &Arc<ModelFrontend>,
    ) -> Result<(RawRequest, OllamaChatProtocol), ApiError> {
        let format = output_format(body.format.as_ref())?;
        let messages = body.messages.0.into_iter().map(Message::into_value).collect::<Result<Vec<_>, _>>()?;
        if messages.is_empty() {
            return Err(ApiError::invalid("messages", "messages is empty; send at least one"));
        }
        let tools = body.tools.map(|tools| tools.0).unwrap_or_default();
        let tools = check_tools(tools.into_iter().map(|tool| tool.0).collect())?;
        let model = frontend.answering(body.model.as_deref());
        let request = RawRequest {
            model: body.model,
            sources: vec![Source::Chat(Chat { messages, tools, ..Chat::default() })],
            format,
            ..options::raw_request(body.options)
        };
        let is_streamed = body.stream != Some(false);
        Ok((request, OllamaChatProtocol { model, is_streamed, begin: Instant::now(), calls: Vec::new(), end: None }))
    }

    fn framing(&self) -> Option<Framing> {
        self.is_streamed.then_some(Framing::Lines)
    }

    fn response(self, answers: Vec<Answer>, used: Usage) -> Value {
        match answers.into_iter().next() {
            Some(answer) => {
                let message = message(&answer.text, &answer.reasoning, &answer.tool_calls);
                last(self.object(message), Some(&answer.end), used, self.begin)
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

impl EventWriter for OllamaChatProtocol {
    fn delta(&mut self, delta: Delta, out: &mut Frames) {
        for piece in delta.pieces {
            match piece {
                Piece::Content(text) => out.object(&self.object(message(&text, "", &[]))),
                Piece::Reasoning(text) => out.object(&self.object(message("", &text, &[]))),
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
            out.object(&self.object(message("", "", &self.calls)));
        }
        self.end = Some(end.clone());
    }

    fn done(&mut self, used: Usage, out: &mut Frames) {
        out.object(&last(self.object(message("", "", &[])), self.end.as_ref(), used, self.begin));
    }

    fn failed(&mut self, error: &ApiError, out: &mut Frames) {
        out.object(&error.body(ErrorShape::Ollama));
    }
}
