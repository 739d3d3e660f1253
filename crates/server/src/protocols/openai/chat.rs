//! `/v1/chat/completions`.

use std::sync::Arc;

use cascadia_engine::Sampling;
use cascadia_text::Piece;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::message::{MAX_MESSAGES, Message};
use super::report::{chat_logprobs, finish_reason, usage};
use crate::answer::event_stream::{EventWriter, Frames, Framing};
use crate::answer::{Answer, AnswerEnd, Delta, ToolCall, Usage};
use crate::error::{ApiError, ErrorShape};
use crate::model::frontend::{ModelFrontend, unix_seconds};
use crate::protocols::tool_calls::{call_id, openai_call};
use crate::protocols::{Protocol, RequestContext};
use crate::request::bounded::{Json, List};
use crate::request::output_format::output_format;
use crate::request::reasoning::effort_variables;
use crate::request::sampling::{self, HasSampling, SamplingField, SamplingValues, WithSampling};
use crate::request::tools::{MAX_TOOLS, check_tools, must_call};
use crate::request::validate::{Beginning, Chat, Given, MustCall, RawRequest, Source};

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
    /// Whether an answer may have more than one call.
    parallel_tool_calls: Option<bool>,
    /// Functions the model may call, as older clients send them.
    #[schema(value_type = Option<Vec<Object>>)]
    functions: Option<List<Json, MAX_TOOLS>>,
    /// `auto`, `none`, or one of `functions`.
    #[schema(value_type = Option<Object>)]
    function_call: Option<Json>,
    /// Continue the last message, which is the assistant's.
    continue_final_message: Option<bool>,
    /// Whether the prompt opens a message of the assistant; true unless the last message is continued.
    add_generation_prompt: Option<bool>,
    /// `none`, `minimal`, `low`, `medium`, `high` or `xhigh`, for templates that know it.
    reasoning_effort: Option<String>,
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
    /// The client knows one call in an answer, and `functions`.
    is_legacy: bool,
}

impl Protocol for ChatProtocol {
    type Body = WithSampling<ChatRequest>;

    fn read(request: Self::Body, context: &RequestContext) -> Result<(RawRequest, ChatProtocol), ApiError> {
        let frontend = &context.frontend;
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
            is_legacy: body.functions.is_some(),
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
            let reason = self.finish_reason(&answer.end);
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

    fn finish_reason(&self, end: &AnswerEnd) -> &'static str {
        match finish_reason(end) {
            "tool_calls" if self.is_legacy => "function_call",
            reason => reason,
        }
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
            if self.is_legacy {
                let call = &answer.tool_calls[0];
                message["function_call"] = json!({"name": call.name, "arguments": call.arguments});
                return message;
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
            Piece::ToolStart { name, .. } if self.is_legacy => {
                json!({"function_call": {"name": name, "arguments": ""}})
            }
            Piece::ToolArguments { fragment, .. } if self.is_legacy => {
                json!({"function_call": {"arguments": fragment}})
            }
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
        let reason = self.finish_reason(end);
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
    let is_legacy = body.functions.is_some();
    let (tools, must_call) = match body.functions {
        Some(functions) if body.tools.is_none() => legacy_tools(functions, body.function_call)?,
        Some(_) => return Err(ApiError::invalid("functions", "functions and tools are both there; send tools")),
        None => tools(body.tools, body.tool_choice.as_ref())?,
    };
    let mut variables = match body.reasoning_effort {
        Some(effort) => effort_variables("reasoning_effort", &effort)?,
        None => Map::new(),
    };
    match body.chat_template_kwargs {
        None | Some(Json(Value::Null)) => {}
        Some(Json(Value::Object(given))) => variables.extend(given),
        Some(_) => return Err(ApiError::invalid("chat_template_kwargs", "chat_template_kwargs must be an object")),
    }
    let variables = (!variables.is_empty()).then_some(variables);
    let one_call = is_legacy || body.parallel_tool_calls == Some(false);
    let mut chat = Chat { messages, tools, variables, must_call, one_call, beginning: Beginning::Opened };
    match (body.continue_final_message, body.add_generation_prompt) {
        (Some(true), Some(true)) => {
            let message = "continue_final_message and add_generation_prompt are both true; send one of them";
            return Err(ApiError::invalid("continue_final_message", message));
        }
        (Some(true), _) if !chat.continue_last() => {
            let message =
                "continue_final_message needs a last message with a text of the assistant, after another message";
            return Err(ApiError::invalid("continue_final_message", message));
        }
        (Some(true), _) | (_, None | Some(true)) => {}
        (_, Some(false)) => chat.beginning = Beginning::NotOpened,
    }
    let alternatives = match (body.logprobs, body.top_logprobs) {
        (Some(true), asked) => Given::new("top_logprobs", Some(asked.unwrap_or(0))),
        (_, None) => None,
        (_, Some(_)) => return Err(ApiError::invalid("top_logprobs", "top_logprobs needs logprobs: true")),
    };
    let newer = Given::new("max_completion_tokens", body.max_completion_tokens);
    Ok(RawRequest {
        model: body.model,
        sources: vec![Source::Chat(Box::new(chat))],
        choices: body.n,
        max_tokens: newer.or(Given::new("max_tokens", body.max_tokens)),
        defaults: Sampling::default(),
        sampling,
        alternatives,
        priority: body.priority,
        service_tier: body.service_tier,
        format,
        ..RawRequest::default()
    })
}

/// The same of `functions` and `function_call`, which older clients send.
fn legacy_tools(functions: List<Json, MAX_TOOLS>, choice: Option<Json>) -> Result<(Option<Value>, MustCall), ApiError> {
    let tools = functions.0.into_iter().map(|Json(function)| Json(json!({"type": "function", "function": function})));
    let renamed = |error: ApiError, name: &str| ApiError { param: Some(name.to_owned()), ..error };
    let choice = choice.map(|Json(choice)| match choice["name"].as_str() {
        Some(name) => Json(json!({"type": "function", "function": {"name": name}})),
        None => Json(choice),
    });
    self::tools(Some(List(tools.collect())), choice.as_ref()).map_err(|error| match error.param.as_deref() {
        Some("tool_choice") => renamed(error, "function_call"),
        _ => renamed(error, "functions"),
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
