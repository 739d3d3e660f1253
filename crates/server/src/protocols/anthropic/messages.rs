//! `/v1/messages` and `/v1/messages/count_tokens`.

use std::sync::Arc;

use axum::extract::{Extension, Request, State};
use axum::response::Response;
use cascadia_engine::{FinishReason, Sampling};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::blocks::{BlockMessage, BlockTool, Blocks};
use crate::answer::event_stream::{EventWriter, Frames, Framing};
use crate::answer::segments::{Segment, SegmentEvent, SegmentKind, Segmenter};
use crate::answer::{Answer, AnswerEnd, Delta, Usage};
use crate::app::App;
use crate::error::{ApiError, ErrorShape};
use crate::model::frontend::{Caller, ModelFrontend};
use crate::protocols::openai::message::MAX_MESSAGES;
use crate::protocols::tool_calls::{arguments_object, call_id};
use crate::protocols::{Protocol, RequestContext, json, parse, read_body};
use crate::request::bounded::{Json, List};
use crate::request::output_format::output_format;
use crate::request::reasoning::{EFFORT, SWITCHES, effort_variables, switched};
use crate::request::sampling::{HasSampling, MAX_STOPS, SamplingField, TEMPERATURE, TOP_K, TOP_P, WithSampling};
use crate::request::tools::MAX_TOOLS;
use crate::request::validate::{Chat, Given, MustCall, RawRequest, Source};

/// A request for an answer to a conversation.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct MessagesRequest {
    /// The model's name or `default`, alone or with an adapter: `model:adapter`.
    model: Option<String>,
    /// The conversation so far.
    #[schema(value_type = Vec<BlockMessage>, min_items = 1, max_items = 4096)]
    messages: List<BlockMessage, MAX_MESSAGES>,
    /// Instructions before the conversation.
    #[schema(value_type = Option<Object>)]
    system: Option<Blocks>,
    /// The most tokens of the answer.
    #[schema(minimum = 1, maximum = 1048576)]
    max_tokens: Option<i64>,
    /// Texts that end the answer, up to 16.
    #[schema(value_type = Option<Vec<String>>)]
    stop_sequences: Option<List<String, MAX_STOPS>>,
    /// Stream the answer.
    stream: Option<bool>,
    /// Functions the model may call.
    #[schema(value_type = Option<Vec<BlockTool>>)]
    tools: Option<List<BlockTool, MAX_TOOLS>>,
    /// `auto`, `any`, `none`, or one function; with `disable_parallel_tool_use`, an answer has one call at most.
    #[schema(value_type = Option<Object>)]
    tool_choice: Option<Json>,
    /// `format` of the answer, a JSON schema; and `effort`, for templates that know it.
    #[schema(value_type = Option<Object>)]
    output_config: Option<Json>,
    /// Whether the model reasons before it answers; how long is its own choice.
    #[schema(value_type = Option<Object>)]
    thinking: Option<Json>,
    /// Servers with tools; not supported.
    #[schema(value_type = Option<Vec<Object>>)]
    mcp_servers: Option<Json>,
    /// `auto` or `standard_only`.
    service_tier: Option<String>,
}

impl HasSampling for MessagesRequest {
    const FIELDS: &'static [SamplingField] = &[TEMPERATURE, TOP_P, TOP_K];
}

/// What is remembered of a request until its answer is complete.
pub(crate) struct MessagesProtocol {
    model: String,
    id: String,
    is_streamed: bool,
    stops: Vec<String>,
    segmenter: Segmenter,
    end: Option<AnswerEnd>,
}

impl Protocol for MessagesProtocol {
    type Body = WithSampling<MessagesRequest>;

    fn read(request: Self::Body, context: &RequestContext) -> Result<(RawRequest, MessagesProtocol), ApiError> {
        let frontend = &context.frontend;
        if request.body.max_tokens.is_none() {
            return Err(ApiError::invalid(
                "max_tokens",
                "max_tokens is missing; set the most tokens that the answer may have",
            ));
        }
        let is_streamed = request.body.stream == Some(true);
        let stops = request.body.stop_sequences.as_ref().map(|stops| stops.0.clone()).unwrap_or_default();
        let protocol = MessagesProtocol {
            model: frontend.answering(request.body.model.as_deref()),
            id: "msg_".to_owned(),
            is_streamed,
            stops,
            segmenter: Segmenter::default(),
            end: None,
        };
        let request = raw_request(request)?;
        if let [Source::Chat(chat)] = request.sources.as_slice() {
            check_thinking(chat, frontend)?;
        }
        Ok((request, protocol))
    }

    fn set_id(&mut self, id: &str) {
        self.id.push_str(id);
    }

    fn framing(&self) -> Option<Framing> {
        self.is_streamed.then_some(Framing::Events)
    }

    fn response(self, answers: Vec<Answer>, used: Usage) -> Value {
        let mut object = self.message();
        if let Some(answer) = answers.into_iter().next() {
            object["stop_reason"] = stop_reason(&answer.end).into();
            object["stop_sequence"] = json!(self.stop_text(&answer.end));
            object["content"] = Segment::all(answer).iter().map(|segment| self.block(segment)).collect();
        }
        object["usage"] = usage(used);
        object
    }

    fn event_writer(self) -> Box<dyn EventWriter> {
        Box::new(self)
    }
}

impl MessagesProtocol {
    fn message(&self) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": null,
            "stop_sequence": null,
        })
    }

    /// A segment as a block; the arguments of a call in progress follow later.
    fn block(&self, segment: &Segment) -> Value {
        match segment.kind {
            SegmentKind::Reasoning => json!({"type": "thinking", "thinking": segment.text, "signature": ""}),
            SegmentKind::Text => json!({"type": "text", "text": segment.text}),
            SegmentKind::ToolCall => {
                let (id, input) = (call_id(&self.id, 0, segment.index), arguments_object(&segment.text));
                json!({"type": "tool_use", "id": id, "name": segment.name, "input": input})
            }
        }
    }

    /// Writes what happens to a block.
    fn write(&self, event: SegmentEvent, out: &mut Frames) {
        out.typed(&match event {
            SegmentEvent::Open(segment) => {
                json!({"type": "content_block_start", "index": segment.index, "content_block": self.block(&segment)})
            }
            SegmentEvent::Append { index, kind, text } => {
                let delta = match kind {
                    SegmentKind::Reasoning => json!({"type": "thinking_delta", "thinking": text}),
                    SegmentKind::Text => json!({"type": "text_delta", "text": text}),
                    SegmentKind::ToolCall => json!({"type": "input_json_delta", "partial_json": text}),
                };
                json!({"type": "content_block_delta", "index": index, "delta": delta})
            }
            SegmentEvent::Close(segment) => json!({"type": "content_block_stop", "index": segment.index}),
        });
    }

    fn stop_text(&self, end: &AnswerEnd) -> Option<&str> {
        end.stop.and_then(|index| self.stops.get(index)).map(String::as_str)
    }
}

impl EventWriter for MessagesProtocol {
    fn begin(&mut self, prompt_tokens: usize, out: &mut Frames) {
        let mut message = self.message();
        message["usage"] = usage(Usage { prompt: prompt_tokens, ..Usage::default() });
        out.typed(&json!({"type": "message_start", "message": message}));
    }

    fn delta(&mut self, delta: Delta, out: &mut Frames) {
        for event in self.segmenter.events(delta.pieces) {
            self.write(event, out);
        }
    }

    fn ended(&mut self, _choice: usize, end: &AnswerEnd, out: &mut Frames) {
        if let Some(event) = self.segmenter.close() {
            self.write(event, out);
        }
        self.end = Some(end.clone());
    }

    fn done(&mut self, used: Usage, out: &mut Frames) {
        let (reason, stop) = match &self.end {
            Some(end) => (stop_reason(end), self.stop_text(end)),
            None => ("end_turn", None),
        };
        let delta = json!({"stop_reason": reason, "stop_sequence": stop});
        out.typed(&json!({"type": "message_delta", "delta": delta, "usage": usage(used)}));
        out.typed(&json!({"type": "message_stop"}));
    }

    fn failed(&mut self, error: &ApiError, out: &mut Frames) {
        out.typed(&error.body(ErrorShape::Anthropic));
    }
}

/// Counts the tokens of a conversation.
pub(crate) async fn count(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let count = read_body(&app, request, move |bytes, frontend| {
        let request = raw_request(parse(bytes)?)?;
        frontend.select(request.model.as_deref(), &caller)?;
        let tokens = request.sources.iter().map(|source| frontend.tokens(source).map(|tokens| tokens.len()));
        tokens.sum::<Result<usize, _>>()
    })
    .await?;
    Ok(json(&json!({"input_tokens": count})))
}

fn raw_request(request: WithSampling<MessagesRequest>) -> Result<RawRequest, ApiError> {
    let WithSampling { body, sampling } = request;
    let mut messages = Vec::new();
    if let Some(system) = body.system {
        messages.push(json!({"role": "system", "content": system.into_text()?}));
    }
    if body.messages.0.is_empty() {
        return Err(ApiError::invalid("messages", "messages is empty; send at least one"));
    }
    for message in body.messages.0 {
        messages.extend(message.into_values()?);
    }
    let tools = body.tools.map(|tools| tools.0).unwrap_or_default();
    let tools = tools.into_iter().filter_map(|tool| tool.into_value().transpose()).collect::<Result<Vec<_>, _>>()?;
    let choice = body.tool_choice.as_ref().map_or(&Value::Null, |choice| &choice.0);
    let (tools, must_call) = match (choice["type"].as_str(), choice["name"].as_str()) {
        (None | Some("auto"), _) => (tools, MustCall::Nothing),
        (Some("none"), _) => (Vec::new(), MustCall::Nothing),
        (Some("any"), _) => (tools, MustCall::Any),
        (Some("tool"), Some(name)) => (tools, MustCall::Function(name.to_owned())),
        _ => {
            let message = "tool_choice must be of type auto, any, none, or tool with a name";
            return Err(ApiError::invalid("tool_choice", message));
        }
    };
    let tools = (!tools.is_empty()).then_some(Value::Array(tools));
    let one_call = choice["disable_parallel_tool_use"] == true;
    if body.mcp_servers.is_some_and(|servers| !servers.0.is_null() && servers.0 != json!([])) {
        let message = "mcp_servers: this server calls no other servers; offer their functions as tools";
        return Err(ApiError::unsupported("mcp_servers", message));
    }
    let output = body.output_config.map(|output| output.0).unwrap_or_default();
    let mut variables = match output["effort"].as_str() {
        // Anthropic's name for the most.
        Some("max") => effort_variables("output_config.effort", "xhigh")?,
        Some(effort) => effort_variables("output_config.effort", effort)?,
        None => Map::new(),
    };
    variables.extend(thinking_variables(body.thinking.as_ref())?);
    let variables = (!variables.is_empty()).then_some(variables);
    let mut chat = Chat { messages, tools, variables, must_call, one_call, ..Chat::default() };
    // A last message of the assistant is how the answer begins.
    chat.continue_last();
    Ok(RawRequest {
        model: body.model,
        sources: vec![Source::Chat(Box::new(chat))],
        format: output_format("output_config.format", output.get("format"))?,
        max_tokens: Given::new("max_tokens", body.max_tokens),
        defaults: Sampling::default(),
        sampling: sampling.with_stop(body.stop_sequences.map(|stops| stops.0).unwrap_or_default()),
        service_tier: body.service_tier,
        ..RawRequest::default()
    })
}

/// What `thinking` asks the template for.
fn thinking_variables(thinking: Option<&Json>) -> Result<Map<String, Value>, ApiError> {
    match thinking.map(|thinking| &thinking.0).filter(|thinking| !thinking.is_null()) {
        None => Ok(Map::new()),
        Some(thinking) => match thinking["type"].as_str() {
            // How much is up to the model.
            Some("adaptive") => Ok(Map::new()),
            Some("enabled") => Ok(switched(true)),
            Some("disabled") => Ok(switched(false)),
            _ => Err(ApiError::invalid("thinking", "thinking must be of type enabled, disabled or adaptive")),
        },
    }
}

/// An error if the model is asked to reason and does not know how.
fn check_thinking(chat: &Chat, frontend: &ModelFrontend) -> Result<(), ApiError> {
    let is_asked = chat.variables.as_ref().is_some_and(|variables| {
        variables.get(SWITCHES[0]) == Some(&Value::Bool(true)) && !variables.contains_key(EFFORT)
    });
    let can = frontend.reply_format.reasons() || SWITCHES.iter().any(|name| frontend.template_has(name));
    match is_asked && !can {
        true => {
            Err(ApiError::unsupported("thinking", "this model does not reason before it answers; leave out thinking"))
        }
        false => Ok(()),
    }
}

fn stop_reason(end: &AnswerEnd) -> &'static str {
    match end.finish {
        _ if end.awaits_tools() => "tool_use",
        FinishReason::Stop | FinishReason::Cancelled if end.stop.is_some() => "stop_sequence",
        FinishReason::Stop | FinishReason::Cancelled => "end_turn",
        FinishReason::Length | FinishReason::Deadline => "max_tokens",
    }
}

fn usage(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.prompt.saturating_sub(usage.cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.generated,
    })
}
