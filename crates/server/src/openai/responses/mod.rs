//! `/v1/responses`.

mod event_writer;
mod input;

use std::sync::Arc;

use cascadia_engine::{FinishReason, Sampling};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::answer::{Answer, End, Usage};
use crate::bounded::{Json, List};
use crate::calls::{self, MAX_TOOLS, call_id};
use crate::error::ApiError;
use crate::model_frontend::{ModelFrontend, unix_seconds};
use crate::output_format::output_format;
use crate::parts::{Part, PartKind};
use crate::protocol::Protocol;
use crate::sampling::{HasSampling, SamplingField, SamplingValues, TEMPERATURE, TOP_P, WithSampling};
use crate::stream::{EventWriter, Framing};
use crate::validate::{Chat, Given, MustCall, RawRequest, Source};
use input::Input;

/// A request for a response to a text or a conversation.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ResponsesRequest {
    /// The model's name, or `default`.
    model: Option<String>,
    /// A text, or the items of a conversation.
    #[schema(value_type = Object)]
    input: Input,
    /// What the model is told before it.
    instructions: Option<String>,
    /// The most tokens of the response.
    #[schema(minimum = 1, maximum = 1048576)]
    max_output_tokens: Option<i64>,
    /// Send the response while it is made.
    stream: Option<bool>,
    /// The form of the text.
    #[schema(value_type = Option<Object>)]
    text: Option<Json>,
    /// Functions the model may call.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<List<Json, MAX_TOOLS>>,
    /// `auto`, `none`, `required`, or one function.
    #[schema(value_type = Option<Object>)]
    tool_choice: Option<Json>,
    /// Words of the client's own, given back.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Json>,
    /// `high`, `normal` or `low`.
    priority: Option<String>,
    /// `auto`, `default`, `flex` or `priority`.
    service_tier: Option<String>,
    /// An earlier response to go on from; not supported: nothing is stored here.
    previous_response_id: Option<String>,
    /// A stored conversation; not supported.
    #[schema(value_type = Option<Object>)]
    conversation: Option<Json>,
    /// Answer later; not supported.
    background: Option<bool>,
}

impl HasSampling for ResponsesRequest {
    const FIELDS: &'static [SamplingField] = &[TEMPERATURE, TOP_P];
}

/// What is remembered of a request until its response is complete.
pub(crate) struct ResponsesProtocol {
    desk: Arc<ModelFrontend>,
    id: String,
    streams: bool,
    /// What the response says about the request.
    head: Value,
}

impl Protocol for ResponsesProtocol {
    type Body = WithSampling<ResponsesRequest>;

    fn read(request: Self::Body, desk: &Arc<ModelFrontend>) -> Result<(RawRequest, ResponsesProtocol), ApiError> {
        let WithSampling { body, sampling } = request;
        check_supported(&body)?;
        let head = head(&body, &sampling);
        let streams = body.stream == Some(true);
        let door = ResponsesProtocol { desk: Arc::clone(desk), id: "resp_".to_owned(), streams, head };
        Ok((wanted(body, sampling)?, door))
    }

    fn take_name(&mut self, name: &str) {
        self.id.push_str(name);
    }

    fn framing(&self) -> Option<Framing> {
        self.streams.then_some(Framing::Events)
    }

    fn whole(self, answers: Vec<Answer>, used: Usage) -> Value {
        let end = answers.first().map(|answer| answer.end.clone());
        let parts: Vec<Part> = answers.into_iter().next().map(Part::all).unwrap_or_default();
        self.response(&parts, end.as_ref(), Some(used))
    }

    fn voice(self) -> Box<dyn EventWriter> {
        Box::new(event_writer::ResponsesEventWriter::new(self))
    }
}

impl ResponsesProtocol {
    /// The response as far as it is known; it has no end while it goes on.
    fn response(&self, parts: &[Part], end: Option<&End>, used: Option<Usage>) -> Value {
        let mut object = self.head.clone();
        object["id"] = json!(self.id);
        object["model"] = json!(self.desk.model.name);
        object["status"] = status(end).into();
        if status(end) == "incomplete" {
            object["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        object["output"] = parts.iter().map(|part| self.item(part, status(end))).collect();
        if let Some(used) = used {
            object["usage"] = json!({
                "input_tokens": used.prompt,
                "input_tokens_details": {"cached_tokens": used.reused},
                "output_tokens": used.answer,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": used.prompt + used.answer,
            });
        }
        object
    }

    /// A part as an item of the output; one that goes on has no content yet.
    fn item(&self, part: &Part, status: &str) -> Value {
        let id = self.item_id(part.index, part.kind);
        let content = |kind: &str| match status {
            "in_progress" => json!([]),
            _ => json!([content(kind, &part.text)]),
        };
        match part.kind {
            PartKind::Thought => {
                json!({"id": id, "type": "reasoning", "summary": [], "content": content("reasoning_text"), "status": status})
            }
            PartKind::Text => {
                let content = content("output_text");
                json!({"id": id, "type": "message", "role": "assistant", "content": content, "status": status})
            }
            PartKind::Call => {
                let call_id = call_id(&self.id, 0, part.index);
                json!({"id": id, "type": "function_call", "call_id": call_id, "name": part.name,
                    "arguments": part.text, "status": status})
            }
        }
    }

    fn item_id(&self, index: usize, kind: PartKind) -> String {
        let prefix = match kind {
            PartKind::Thought => "rs",
            PartKind::Text => "msg",
            PartKind::Call => "fc",
        };
        format!("{prefix}_{}_{index}", self.id.trim_start_matches("resp_"))
    }
}

/// The content of an item.
fn content(kind: &str, text: &str) -> Value {
    match kind {
        "output_text" => json!({"type": kind, "text": text, "annotations": [], "logprobs": []}),
        _ => json!({"type": kind, "text": text}),
    }
}

fn status(end: Option<&End>) -> &'static str {
    match end.map(|end| end.finish) {
        None => "in_progress",
        Some(FinishReason::Stop | FinishReason::Cancelled) => "completed",
        Some(FinishReason::Length | FinishReason::Deadline) => "incomplete",
    }
}

/// What every response to this request says.
fn head(body: &ResponsesRequest, sampling: &SamplingValues) -> Value {
    json!({
        "object": "response",
        "created_at": unix_seconds(),
        "error": null,
        "incomplete_details": null,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata.as_ref().map_or_else(|| json!({}), |metadata| metadata.0.clone()),
        "parallel_tool_calls": true,
        "previous_response_id": null,
        "reasoning": {"effort": null, "summary": null},
        "service_tier": "default",
        "store": false,
        "temperature": sampling.number(&TEMPERATURE).unwrap_or(1.0),
        "text": {"format": {"type": "text"}},
        "tool_choice": body.tool_choice.as_ref().map_or_else(|| json!("auto"), |choice| choice.0.clone()),
        "tools": body.tools.iter().flat_map(|tools| tools.0.iter().map(|tool| tool.0.clone())).collect::<Vec<_>>(),
        "top_p": sampling.number(&TOP_P).unwrap_or(1.0),
        "truncation": "disabled",
        "usage": null,
    })
}

fn check_supported(body: &ResponsesRequest) -> Result<(), ApiError> {
    let stored = "nothing is stored here; send the whole conversation as input";
    if body.previous_response_id.is_some() {
        return Err(ApiError::unsupported("previous_response_id", format!("previous_response_id: {stored}")));
    }
    if body.conversation.as_ref().is_some_and(|conversation| !conversation.0.is_null()) {
        return Err(ApiError::unsupported("conversation", format!("conversation: {stored}")));
    }
    if body.background == Some(true) {
        return Err(ApiError::unsupported("background", "background is not supported; wait for the response"));
    }
    Ok(())
}

fn wanted(body: ResponsesRequest, sampling: SamplingValues) -> Result<RawRequest, ApiError> {
    let mut messages = Vec::new();
    messages.extend(body.instructions.map(|text| json!({"role": "system", "content": text})));
    messages.extend(body.input.into_messages()?);
    let tools = body.tools.map(|tools| tools.0).unwrap_or_default();
    let tools = tools.into_iter().map(|tool| input::function(tool.0)).collect::<Result<Vec<_>, _>>()?;
    let tools = calls::checked(tools)?;
    let (tools, must_call) = match calls::must_call(body.tool_choice.as_ref().map(|choice| &choice.0))? {
        Some(must_call) => (tools, must_call),
        None => (None, MustCall::Nothing),
    };
    Ok(RawRequest {
        model: body.model,
        sources: vec![Source::Chat(Chat { messages, tools, must_call, ..Chat::default() })],
        format: output_format("text.format", body.text.as_ref().map(|text| &text.0["format"]))?,
        max_tokens: Given::new("max_output_tokens", body.max_output_tokens),
        defaults: Sampling::default(),
        sampling,
        priority: body.priority,
        service_tier: body.service_tier,
        ..RawRequest::default()
    })
}
