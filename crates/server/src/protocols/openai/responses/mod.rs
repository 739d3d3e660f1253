//! `/v1/responses`.

mod event_writer;
mod input;

use std::sync::Arc;

use cascadia_engine::{FinishReason, Sampling};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::answer::event_stream::{EventWriter, Framing};
use crate::answer::segments::{Segment, SegmentKind};
use crate::answer::{Answer, AnswerEnd, Usage};
use crate::error::ApiError;
use crate::model::frontend::{ModelFrontend, unix_seconds};
use crate::protocols::Protocol;
use crate::protocols::tool_calls::call_id;
use crate::request::bounded::{Json, List, Metadata};
use crate::request::output_format::output_format;
use crate::request::sampling::{HasSampling, SamplingField, SamplingValues, TEMPERATURE, TOP_P, WithSampling};
use crate::request::tools::{MAX_TOOLS, check_tools, must_call};
use crate::request::validate::{Chat, Given, MustCall, RawRequest, Source};
use input::Input;

/// A request for a response to a text or a conversation.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ResponsesRequest {
    /// The model's name or `default`, alone or with an adapter: `model:adapter`.
    model: Option<String>,
    /// A text, or the items of a conversation.
    #[schema(value_type = Object)]
    input: Input,
    /// Instructions before the conversation.
    instructions: Option<String>,
    /// The most tokens of the response.
    #[schema(minimum = 1, maximum = 1048576)]
    max_output_tokens: Option<i64>,
    /// Stream the response.
    stream: Option<bool>,
    /// The format of the text.
    #[schema(value_type = Option<Object>)]
    text: Option<Json>,
    /// Functions the model may call.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<List<Json, MAX_TOOLS>>,
    /// `auto`, `none`, `required`, or one function.
    #[schema(value_type = Option<Object>)]
    tool_choice: Option<Json>,
    /// Returned as it is: at most 16 texts of 512 characters, under names of 64.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Metadata>,
    /// `high`, `normal` or `low`.
    priority: Option<String>,
    /// `auto`, `default`, `flex` or `priority`.
    service_tier: Option<String>,
    /// An earlier response to continue from; not supported: nothing is stored here.
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
    model: String,
    id: String,
    is_streamed: bool,
    /// The fields that every response has.
    head: Value,
}

impl Protocol for ResponsesProtocol {
    type Body = WithSampling<ResponsesRequest>;

    fn read(request: Self::Body, frontend: &Arc<ModelFrontend>) -> Result<(RawRequest, ResponsesProtocol), ApiError> {
        let WithSampling { body, sampling } = request;
        check_supported(&body)?;
        let (model, head) = (frontend.answering(body.model.as_deref()), head(&body, &sampling));
        let is_streamed = body.stream == Some(true);
        let protocol = ResponsesProtocol { model, id: "resp_".to_owned(), is_streamed, head };
        Ok((raw_request(body, sampling)?, protocol))
    }

    fn set_id(&mut self, id: &str) {
        self.id.push_str(id);
    }

    fn framing(&self) -> Option<Framing> {
        self.is_streamed.then_some(Framing::Events)
    }

    fn response(self, answers: Vec<Answer>, used: Usage) -> Value {
        let end = answers.first().map(|answer| answer.end.clone());
        let segments: Vec<Segment> = answers.into_iter().next().map(Segment::all).unwrap_or_default();
        self.response_object(&segments, end.as_ref(), Some(used))
    }

    fn event_writer(self) -> Box<dyn EventWriter> {
        Box::new(event_writer::ResponsesEventWriter::new(self))
    }
}

impl ResponsesProtocol {
    /// The response as far as it is known; `end` is `None` while it is in progress.
    fn response_object(&self, segments: &[Segment], end: Option<&AnswerEnd>, used: Option<Usage>) -> Value {
        let mut object = self.head.clone();
        object["id"] = json!(self.id);
        object["model"] = json!(self.model);
        object["status"] = status(end).into();
        if status(end) == "incomplete" {
            object["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        object["output"] = segments.iter().map(|segment| self.item(segment, status(end))).collect();
        if let Some(used) = used {
            object["usage"] = json!({
                "input_tokens": used.prompt,
                "input_tokens_details": {"cached_tokens": used.cached},
                "output_tokens": used.generated,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": used.prompt + used.generated,
            });
        }
        object
    }

    /// A segment as an item of the output; one in progress has no content yet.
    fn item(&self, segment: &Segment, status: &str) -> Value {
        let id = self.item_id(segment.index, segment.kind);
        let content = |kind: &str| match status {
            "in_progress" => json!([]),
            _ => json!([content(kind, &segment.text)]),
        };
        match segment.kind {
            SegmentKind::Reasoning => {
                json!({"id": id, "type": "reasoning", "summary": [], "content": content("reasoning_text"), "status": status})
            }
            SegmentKind::Text => {
                let content = content("output_text");
                json!({"id": id, "type": "message", "role": "assistant", "content": content, "status": status})
            }
            SegmentKind::ToolCall => {
                let call_id = call_id(&self.id, 0, segment.index);
                json!({"id": id, "type": "function_call", "call_id": call_id, "name": segment.name,
                    "arguments": segment.text, "status": status})
            }
        }
    }

    fn item_id(&self, index: usize, kind: SegmentKind) -> String {
        let prefix = match kind {
            SegmentKind::Reasoning => "rs",
            SegmentKind::Text => "msg",
            SegmentKind::ToolCall => "fc",
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

fn status(end: Option<&AnswerEnd>) -> &'static str {
    match end.map(|end| end.finish) {
        None => "in_progress",
        Some(FinishReason::Stop | FinishReason::Cancelled) => "completed",
        Some(FinishReason::Length | FinishReason::Deadline) => "incomplete",
    }
}

/// The fields that every response to this request has.
fn head(body: &ResponsesRequest, sampling: &SamplingValues) -> Value {
    json!({
        "object": "response",
        "created_at": unix_seconds(),
        "error": null,
        "incomplete_details": null,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata.clone().unwrap_or_default(),
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
    let stored = "this server stores nothing; send the whole conversation as input";
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

fn raw_request(body: ResponsesRequest, sampling: SamplingValues) -> Result<RawRequest, ApiError> {
    let mut messages = Vec::new();
    messages.extend(body.instructions.map(|text| json!({"role": "system", "content": text})));
    messages.extend(body.input.into_messages()?);
    let tools = body.tools.map(|tools| tools.0).unwrap_or_default();
    let tools = tools.into_iter().map(|tool| input::function(tool.0)).collect::<Result<Vec<_>, _>>()?;
    let tools = check_tools(tools)?;
    let (tools, must_call) = match must_call(body.tool_choice.as_ref().map(|choice| &choice.0))? {
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
