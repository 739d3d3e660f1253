//! `/v1/chat/completions`.

use std::sync::Arc;

use cascadia_engine::Sampling;
use cascadia_text::Piece;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::message::{MAX_MESSAGES, Message};
use super::report::{chat_logprobs, finish_reason, usage};
use crate::answer::event_stream::{EventWriter, Frames, Framing};
use crate::answer::{Answer, AnswerEnd, Delta, ToolCall, Usage};
use crate::error::{ApiError, ErrorShape};
use crate::model::frontend::{ModelFrontend, unix_seconds};
use crate::protocols::Protocol;
use crate::protocols::tool_calls::{call_id, openai_call};
use crate::request::bounded::{Json, List};
use crate::request::output_format::output_format;
use crate::request::sampling::{self, HasSampling, SamplingField, SamplingValues, WithSampling};
use crate::request::tools::{MAX_TOOLS, check_tools, must_call};
use crate::request::validate::{Chat, Given, MustCall, RawRequest, Source};

/// A request for an answer to a conversation.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ChatRequest {
    /// The model's name or `default`, alone or with an adapter: `model:adapter`.
    model: Option<String>,
    /// The conversation so far.
    #[schema(value_type = Vec<Message>, min_items = 1, max_items = 4096)]
    messages: List<Message, MAX_MESSAGES>,
    /// Functions the model may call.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<List<Json, MAX_TOOLS>>,
    /// `auto`, `none`, `required`, or one function.
    #[schema(value_type = Option<Object>)]
    tool_choice: Option<Json>,
    /// The format of the answer.
    #[schema(value_type = Option<Object>)]
    response_format: Option<Json>,
    /// Report the log-probability of every token.
    logprobs: Option<bool>,
    /// And those of this many most likely tokens at each position.
    #[schema(minimum = 0, maximum = 20)]
    top_logprobs: Option<i64>,
    /// The most tokens of an answer.
    #[schema(minimum = 1, maximum = 1048576)]
    max_tokens: Option<i64>,
    /// The same under its newer name.
    #[schema(minimum = 1, maximum = 1048576)]
    max_completion_tokens: Option<i64>,
    /// Answers to generate.
    #[schema(minimum = 1, maximum = 8)]
    n: Option<i64>,
    /// Stream the answer.
    stream: Option<bool>,
    /// What else a stream contains.
    stream_options: Option<StreamOptions>,
    /// `high`, `normal` or `low`.
    priority: Option<String>,
    /// `auto`, `default`, `flex` or `priority`.
    service_tier: Option<String>,
    /// Variables for the model's chat template, such as `enable_thinking`.
    #[schema(value_type = Option<Object>)]
    chat_template_kwargs: Option<Json>,
}

impl HasSampling for ChatRequest {
    const FIELDS: &'static [SamplingField] = sampling::ALL;
}

/// What a stream contains besides the answer.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct StreamOptions {
    /// End with the usage.
    pub(crate) include_usage: Option<bool>,
}

impl StreamOptions {
    pub(crate) fn wants_usage(options: Option<&StreamOptions>) -> bool {
        options.and_then(|options| options.include_usage) == Some(true)
    }
}

/// What is remembered of a request until its answer is complete.
pub(crate) struct ChatProtocol {
    frontend: Arc<ModelFrontend>,
    model: String,
    id: String,
    created: u64,
    is_streamed: bool,
    with_usage: bool,
    with_logprobs: bool,
    choices: usize,
}

impl Protocol for ChatProtocol {
    type Body = WithSampling<ChatRequest>;

    fn read(request: Self::Body, frontend: &Arc<ModelFrontend>) -> Result<(RawRequest, ChatProtocol), ApiError> {
        let WithSampling { body, sampling } = request;
        let protocol = ChatProtocol {
            frontend: Arc::clone(frontend),
            model: frontend.answering(body.model.as_deref()),
            id: "chatcmpl-".to_owned(),
            created: unix_seconds(),
            is_streamed: body.stream == Some(true),
            with_usage: StreamOptions::wants_usage(body.stream_options.as_ref()),
            with_logprobs: body.logprobs == Some(true),
            choices: body.n.map_or(1, |n| usize::try_from(n).unwrap_or(1)),
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
                true => chat_logprobs(self.frontend.model.text.tokenizer(), &answer.logprobs),
                false => Value::Null,
            };
            let reason = finish_reason(&answer.end);
            let message = self.message(index, answer);
            json!({"index": index, "message": message, "logprobs": logprobs, "finish_reason": reason})
        });
        let choices: Vec<Value> = choices.collect();
        let mut object = self.head("chat.completion");
        object["choices"] = choices.into();
        object["usage"] = usage(used);
        object
    }

    fn event_writer(self) -> Box<dyn EventWriter> {
        Box::new(self)
    }
}

impl ChatProtocol {
    fn head(&self, object: &str) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "service_tier": "default",
            "system_fingerprint": concat!("cascadia-", env!("CARGO_PKG_VERSION")),
        })
    }

    fn message(&self, choice: usize, answer: Answer) -> Value {
        let mut message = json!({"role": "assistant", "content": answer.text, "refusal": null});
        if !answer.reasoning.is_empty() {
            message["reasoning_content"] = answer.reasoning.into();
        }
        if !answer.tool_calls.is_empty() {
            if answer.text.is_empty() {
                message["content"] = Value::Null;
            }
            let calls = answer.tool_calls.iter().enumerate();
            message["tool_calls"] =
                calls.map(|(index, call)| openai_call(call, &call_id(&self.id, choice, index))).collect();
        }
        message
    }

    /// What a piece of an answer adds to its message.
    fn message_delta(&self, choice: usize, piece: Piece) -> Value {
        match piece {
            Piece::Content(text) => json!({"content": text}),
            Piece::Reasoning(text) => json!({"reasoning_content": text}),
            Piece::ToolStart { index, name } => {
                let mut call =
                    openai_call(&ToolCall { name, arguments: String::new() }, &call_id(&self.id, choice, index));
                call["index"] = index.into();
                json!({"tool_calls": [call]})
            }
            Piece::ToolArguments { index, fragment } => {
                json!({"tool_calls": [{"index": index, "function": {"arguments": fragment}}]})
            }
        }
    }

    fn chunk(&self, choices: Value) -> Value {
        let mut object = self.head("chat.completion.chunk");
        object["choices"] = choices;
        if self.with_usage {
            object["usage"] = Value::Null;
        }
        object
    }
}

impl EventWriter for ChatProtocol {
    fn begin(&mut self, _prompt_tokens: usize, out: &mut Frames) {
        for index in 0..self.choices {
            let delta = json!({"role": "assistant", "content": "", "refusal": null});
            let choice = json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": null});
            out.object(&self.chunk(json!([choice])));
        }
    }

    fn delta(&mut self, delta: Delta, out: &mut Frames) {
        let Delta { choice: index, mut pieces, logprob } = delta;
        let mut logprobs = match &logprob {
            Some(logprob) => chat_logprobs(self.frontend.model.text.tokenizer(), std::slice::from_ref(logprob)),
            None => Value::Null,
        };
        if pieces.is_empty() {
            pieces.push(Piece::Content(String::new()));
        }
        for piece in pieces {
            let delta = self.message_delta(index, piece);
            // The log-probability of a token is sent once, with the first of its pieces.
            let choice = json!({"index": index, "delta": delta, "logprobs": logprobs.take(), "finish_reason": null});
            out.object(&self.chunk(json!([choice])));
        }
    }

    fn ended(&mut self, choice: usize, end: &AnswerEnd, out: &mut Frames) {
        let reason = finish_reason(end);
        let choice = json!({"index": choice, "delta": {}, "logprobs": null, "finish_reason": reason});
        out.object(&self.chunk(json!([choice])));
    }

    fn done(&mut self, used: Usage, out: &mut Frames) {
        if self.with_usage {
            let mut object = self.chunk(json!([]));
            object["usage"] = usage(used);
            out.object(&object);
        }
        out.text(None, "[DONE]");
    }

    fn failed(&mut self, error: &ApiError, out: &mut Frames) {
        out.object(&error.body(ErrorShape::OpenAi));
    }
}

fn raw_request(body: ChatRequest, sampling: SamplingValues) -> Result<RawRequest, ApiError> {
    let messages = body.messages.0.into_iter().map(Message::into_value).collect::<Result<Vec<_>, _>>()?;
    if messages.is_empty() {
        return Err(ApiError::invalid("messages", "messages is empty; send at least one"));
    }
    let format = output_format("response_format", body.response_format.as_ref().map(|format| &format.0))?;
    let (tools, must_call) = tools(body.tools, body.tool_choice.as_ref())?;
    let variables = match body.chat_template_kwargs {
        None | Some(Json(Value::Null)) => None,
        Some(Json(Value::Object(variables))) => Some(variables),
        Some(_) => return Err(ApiError::invalid("chat_template_kwargs", "chat_template_kwargs must be an object")),
    };
    let alternatives = match (body.logprobs, body.top_logprobs) {
        (Some(true), asked) => Given::new("top_logprobs", Some(asked.unwrap_or(0))),
        (_, None) => None,
        (_, Some(_)) => return Err(ApiError::invalid("top_logprobs", "top_logprobs needs logprobs: true")),
    };
    let newer = Given::new("max_completion_tokens", body.max_completion_tokens);
    Ok(RawRequest {
        model: body.model,
        sources: vec![Source::Chat(Chat { messages, tools, variables, must_call })],
        choices: body.n,
        max_tokens: newer.or(Given::new("max_tokens", body.max_tokens)),
        defaults: Sampling::default(),
        sampling,
        alternatives,
        priority: body.priority,
        service_tier: body.service_tier,
        format,
    })
}

/// The functions that the model may call, and which of them it must.
fn tools(tools: Option<List<Json, MAX_TOOLS>>, choice: Option<&Json>) -> Result<(Option<Value>, MustCall), ApiError> {
    let tools = tools.map(|tools| tools.0).unwrap_or_default();
    let tools = check_tools(tools.into_iter().map(|tool| tool.0).collect())?;
    Ok(match must_call(choice.map(|choice| &choice.0))? {
        Some(must_call) => (tools, must_call),
        None => (None, MustCall::Nothing),
    })
}
