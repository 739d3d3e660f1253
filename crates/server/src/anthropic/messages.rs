//! `/v1/messages` and `/v1/messages/count_tokens`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use cascadia_engine::{FinishReason, Sampling};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::blocks::{BlockMessage, BlockTool, Blocks};
use crate::answer::{Answer, Delta, End, Usage};
use crate::app::App;
use crate::bounded::{Json, List};
use crate::calls::{self, MAX_TOOLS, call_id};
use crate::error::{ApiError, Shape};
use crate::model_frontend::ModelFrontend;
use crate::openai::message::MAX_MESSAGES;
use crate::parts::{Part, PartKind, Parts, Step};
use crate::protocol::{Protocol, json, parse, read_body};
use crate::sampling::{HasSampling, MAX_STOPS, SamplingField, TEMPERATURE, TOP_K, TOP_P, WithSampling};
use crate::stream::{EventWriter, Frames, Framing};
use crate::validate::{Chat, Given, MustCall, RawRequest, Source};

/// A request for an answer to a conversation.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct MessagesRequest {
    /// The model's name, or `default`.
    model: Option<String>,
    /// The conversation so far.
    #[schema(value_type = Vec<BlockMessage>, min_items = 1, max_items = 4096)]
    messages: List<BlockMessage, MAX_MESSAGES>,
    /// What the model is told before the conversation.
    #[schema(value_type = Option<Object>)]
    system: Option<Blocks>,
    /// The most tokens of the answer.
    #[schema(minimum = 1, maximum = 1048576)]
    max_tokens: Option<i64>,
    /// Texts that end the answer, up to 16.
    #[schema(value_type = Option<Vec<String>>)]
    stop_sequences: Option<List<String, MAX_STOPS>>,
    /// Send the answer while it is made.
    stream: Option<bool>,
    /// Functions the model may call.
    #[schema(value_type = Option<Vec<BlockTool>>)]
    tools: Option<List<BlockTool, MAX_TOOLS>>,
    /// `auto`, `any`, `none`, or one function.
    #[schema(value_type = Option<Object>)]
    tool_choice: Option<Json>,
    /// `auto` or `standard_only`.
    service_tier: Option<String>,
}

impl HasSampling for MessagesRequest {
    const FIELDS: &'static [SamplingField] = &[TEMPERATURE, TOP_P, TOP_K];
}

/// What is remembered of a request until its answer is complete.
pub(crate) struct MessagesProtocol {
    desk: Arc<ModelFrontend>,
    id: String,
    streams: bool,
    stops: Vec<String>,
    parts: Parts,
    end: Option<End>,
}

impl Protocol for MessagesProtocol {
    type Body = WithSampling<MessagesRequest>;

    fn read(request: Self::Body, desk: &Arc<ModelFrontend>) -> Result<(RawRequest, MessagesProtocol), ApiError> {
        if request.body.max_tokens.is_none() {
            return Err(ApiError::invalid("max_tokens", "max_tokens is missing; say how long the answer may be"));
        }
        let streams = request.body.stream == Some(true);
        let stops = request.body.stop_sequences.as_ref().map(|stops| stops.0.clone()).unwrap_or_default();
        let door = MessagesProtocol {
            desk: Arc::clone(desk),
            id: "msg_".to_owned(),
            streams,
            stops,
            parts: Parts::default(),
            end: None,
        };
        Ok((wanted(request)?, door))
    }

    fn take_name(&mut self, name: &str) {
        self.id.push_str(name);
    }

    fn framing(&self) -> Option<Framing> {
        self.streams.then_some(Framing::Events)
    }

    fn whole(self, answers: Vec<Answer>, used: Usage) -> Value {
        let mut object = self.message();
        if let Some(answer) = answers.into_iter().next() {
            object["stop_reason"] = stop_reason(&answer.end).into();
            object["stop_sequence"] = json!(self.stop_text(&answer.end));
            object["content"] = Part::all(answer).iter().map(|part| self.block(part)).collect();
        }
        object["usage"] = usage(used);
        object
    }

    fn voice(self) -> Box<dyn EventWriter> {
        Box::new(self)
    }
}

impl MessagesProtocol {
    fn message(&self) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.desk.model.name,
            "content": [],
            "stop_reason": null,
            "stop_sequence": null,
        })
    }

    /// A part as a block; the arguments of a call that goes on are told later.
    fn block(&self, part: &Part) -> Value {
        match part.kind {
            PartKind::Thought => json!({"type": "thinking", "thinking": part.text, "signature": ""}),
            PartKind::Text => json!({"type": "text", "text": part.text}),
            PartKind::Call => {
                let (id, input) = (call_id(&self.id, 0, part.index), calls::arguments(&part.text));
                json!({"type": "tool_use", "id": id, "name": part.name, "input": input})
            }
        }
    }

    /// Tells what happens to a block.
    fn tell(&self, step: Step, out: &mut Frames) {
        out.typed(&match step {
            Step::Open(part) => {
                json!({"type": "content_block_start", "index": part.index, "content_block": self.block(&part)})
            }
            Step::More { index, kind, text } => {
                let delta = match kind {
                    PartKind::Thought => json!({"type": "thinking_delta", "thinking": text}),
                    PartKind::Text => json!({"type": "text_delta", "text": text}),
                    PartKind::Call => json!({"type": "input_json_delta", "partial_json": text}),
                };
                json!({"type": "content_block_delta", "index": index, "delta": delta})
            }
            Step::Close(part) => json!({"type": "content_block_stop", "index": part.index}),
        });
    }

    fn stop_text(&self, end: &End) -> Option<&str> {
        end.stop.and_then(|index| self.stops.get(index)).map(String::as_str)
    }
}

impl EventWriter for MessagesProtocol {
    fn begin(&mut self, prompt_tokens: usize, out: &mut Frames) {
        let mut message = self.message();
        message["usage"] = usage(Usage { prompt: prompt_tokens, ..Usage::default() });
        out.typed(&json!({"type": "message_start", "message": message}));
    }

    fn said(&mut self, said: Delta, out: &mut Frames) {
        for step in self.parts.steps(said.pieces) {
            self.tell(step, out);
        }
    }

    fn ended(&mut self, _choice: usize, end: &End, out: &mut Frames) {
        if let Some(step) = self.parts.close() {
            self.tell(step, out);
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
        out.typed(&error.body(Shape::Anthropic));
    }
}

/// Tokens of a conversation, before it is sent.
pub(crate) async fn count(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let desk = app.desk();
    let count = read_body(&app, request, move |bytes| {
        let wanted = wanted(parse(bytes)?)?;
        desk.check_model(wanted.model.as_deref())?;
        let tokens = wanted.sources.iter().map(|source| desk.tokens(source).map(|tokens| tokens.len()));
        tokens.sum::<Result<usize, _>>()
    })
    .await?;
    Ok(json(&json!({"input_tokens": count})))
}

fn wanted(request: WithSampling<MessagesRequest>) -> Result<RawRequest, ApiError> {
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
    let tools = tools.into_iter().map(BlockTool::into_value).collect::<Result<Vec<_>, _>>()?;
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
    Ok(RawRequest {
        model: body.model,
        sources: vec![Source::Chat(Chat { messages, tools, must_call, ..Chat::default() })],
        max_tokens: Given::new("max_tokens", body.max_tokens),
        defaults: Sampling::default(),
        sampling: sampling.with_stop(body.stop_sequences.map(|stops| stops.0).unwrap_or_default()),
        service_tier: body.service_tier,
        ..RawRequest::default()
    })
}

fn stop_reason(end: &End) -> &'static str {
    match end.finish {
        _ if end.calls_functions() => "tool_use",
        FinishReason::Stop | FinishReason::Cancelled if end.stop.is_some() => "stop_sequence",
        FinishReason::Stop | FinishReason::Cancelled => "end_turn",
        FinishReason::Length | FinishReason::Deadline => "max_tokens",
    }
}

fn usage(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.prompt.saturating_sub(usage.reused),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.reused,
        "output_tokens": usage.answer,
    })
}
