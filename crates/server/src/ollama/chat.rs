//! `/api/chat`.

use std::sync::Arc;
use std::time::Instant;

use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::clock;
use super::options::{Options, check_format, last};
use crate::answer::{Answer, End, Said, Usage};
use crate::bounded::{Json, List};
use crate::desk::Desk;
use crate::door::Door;
use crate::error::{ApiError, Shape};
use crate::openai::message::{MAX_MESSAGES, Message};
use crate::stream::{Frames, Framing, Voice};
use crate::validate::{Chat, Source, Wanted};

/// A request for an answer to a conversation.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct OllamaChatRequest {
    /// The model's name, or `default`.
    model: Option<String>,
    /// The conversation so far.
    #[schema(value_type = Vec<Message>, min_items = 1, max_items = 4096)]
    messages: List<Message, MAX_MESSAGES>,
    /// Functions the model may call.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<List<Json, 128>>,
    /// The form of the answer.
    #[schema(value_type = Option<Object>)]
    format: Option<Json>,
    /// How it is generated.
    options: Option<Options>,
    /// Send the answer while it is made; unless it says false.
    stream: Option<bool>,
}

/// What is remembered of a request until its answer is complete.
pub(crate) struct OllamaChatDoor {
    desk: Arc<Desk>,
    streams: bool,
    begin: Instant,
    end: Option<End>,
}

impl Door for OllamaChatDoor {
    type Body = OllamaChatRequest;

    fn read(body: OllamaChatRequest, desk: &Arc<Desk>) -> Result<(Wanted, OllamaChatDoor), ApiError> {
        check_format(body.format.as_ref())?;
        let messages = body.messages.0.into_iter().map(Message::into_value).collect::<Result<Vec<_>, _>>()?;
        if messages.is_empty() {
            return Err(ApiError::invalid("messages", "messages is empty; send at least one"));
        }
        let tools: Vec<Value> =
            body.tools.map(|tools| tools.0).unwrap_or_default().into_iter().map(|tool| tool.0).collect();
        let tools = (!tools.is_empty()).then_some(Value::Array(tools));
        let wanted = Wanted {
            model: body.model,
            sources: vec![Source::Chat(Chat { messages, tools, ..Chat::default() })],
            ..body.options.unwrap_or_default().wanted()
        };
        let streams = body.stream != Some(false);
        Ok((wanted, OllamaChatDoor { desk: Arc::clone(desk), streams, begin: Instant::now(), end: None }))
    }

    fn framing(&self) -> Option<Framing> {
        self.streams.then_some(Framing::Lines)
    }

    fn whole(self, answers: Vec<Answer>, used: Usage) -> Value {
        let answer = answers.into_iter().next();
        let (text, end) = answer.map_or((String::new(), None), |answer| (answer.text, Some(answer.end)));
        last(self.object(&text), end.as_ref(), used, self.begin)
    }

    fn voice(self) -> Box<dyn Voice> {
        Box::new(self)
    }
}

impl OllamaChatDoor {
    fn object(&self, text: &str) -> Value {
        let message = json!({"role": "assistant", "content": text});
        json!({"model": self.desk.model.name, "created_at": clock::now(), "message": message, "done": false})
    }
}

impl Voice for OllamaChatDoor {
    fn said(&mut self, said: &Said, out: &mut Frames) {
        out.object(&self.object(&said.text));
    }

    fn ended(&mut self, _choice: usize, end: &End, _out: &mut Frames) {
        self.end = Some(end.clone());
    }

    fn done(&mut self, used: Usage, out: &mut Frames) {
        out.object(&last(self.object(""), self.end.as_ref(), used, self.begin));
    }

    fn failed(&mut self, error: &ApiError, out: &mut Frames) {
        out.object(&error.body(Shape::Ollama));
    }
}
