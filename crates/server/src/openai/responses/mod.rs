//! `/v1/responses`.

mod input;
mod voice;

use std::sync::Arc;

use cascadia_engine::{FinishReason, Sampling};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::answer::{Answer, End, Usage};
use crate::bounded::{Json, List};
use crate::desk::{Desk, unix_seconds};
use crate::door::Door;
use crate::error::ApiError;
use crate::stream::{Framing, Voice};
use crate::validate::{Chat, Given, Source, Wanted};
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
    /// 0 always takes the most likely token.
    #[schema(minimum = 0, maximum = 2)]
    temperature: Option<f64>,
    /// Keep the most likely tokens up to this probability.
    #[schema(minimum = 0, maximum = 1)]
    top_p: Option<f64>,
    /// Send the response while it is made.
    stream: Option<bool>,
    /// The form of the text.
    #[schema(value_type = Option<Object>)]
    text: Option<Json>,
    /// Functions the model may call.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<List<Json, 128>>,
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

/// What is remembered of a request until its response is complete.
pub(crate) struct ResponsesDoor {
    desk: Arc<Desk>,
    id: String,
    item: String,
    streams: bool,
    /// What the response says about the request.
    head: Value,
}

impl Door for ResponsesDoor {
    type Body = ResponsesRequest;

    fn read(body: ResponsesRequest, desk: &Arc<Desk>) -> Result<(Wanted, ResponsesDoor), ApiError> {
        check_supported(&body)?;
        let head = head(&body);
        let streams = body.stream == Some(true);
        let door =
            ResponsesDoor { desk: Arc::clone(desk), id: desk.name("resp_"), item: desk.name("msg_"), streams, head };
        Ok((wanted(body)?, door))
    }

    fn framing(&self) -> Option<Framing> {
        self.streams.then_some(Framing::Events)
    }

    fn whole(self, answers: Vec<Answer>, used: Usage) -> Value {
        match answers.into_iter().next() {
            Some(answer) => self.response(Some((&answer.text, &answer.end)), Some(used)),
            None => self.response(None, Some(used)),
        }
    }

    fn voice(self) -> Box<dyn Voice> {
        Box::new(voice::ResponsesVoice::new(self))
    }
}

impl ResponsesDoor {
    /// The response as far as it is known.
    fn response(&self, answer: Option<(&str, &End)>, used: Option<Usage>) -> Value {
        let mut object = self.head.clone();
        object["id"] = json!(self.id);
        object["model"] = json!(self.desk.model.name);
        let end = answer.map(|(_, end)| end);
        object["status"] = status(end).into();
        if status(end) == "incomplete" {
            object["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        object["output"] = match answer {
            Some((text, end)) => json!([self.message(text, Some(end))]),
            None => json!([]),
        };
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

    /// The one item of the output.
    fn message(&self, text: &str, end: Option<&End>) -> Value {
        let content = match end {
            Some(_) => json!([part(text)]),
            None => json!([]),
        };
        json!({"id": self.item, "type": "message", "status": status(end), "role": "assistant", "content": content})
    }
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

fn status(end: Option<&End>) -> &'static str {
    match end.map(|end| end.finish) {
        None => "in_progress",
        Some(FinishReason::Stop | FinishReason::Cancelled) => "completed",
        Some(FinishReason::Length | FinishReason::ContextFull | FinishReason::Deadline) => "incomplete",
    }
}

/// What every response to this request says.
fn head(body: &ResponsesRequest) -> Value {
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
        "temperature": body.temperature.unwrap_or(1.0),
        "text": {"format": {"type": "text"}},
        "tool_choice": body.tool_choice.as_ref().map_or_else(|| json!("auto"), |choice| choice.0.clone()),
        "tools": body.tools.iter().flat_map(|tools| tools.0.iter().map(|tool| tool.0.clone())).collect::<Vec<_>>(),
        "top_p": body.top_p.unwrap_or(1.0),
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
    match body.text.as_ref().map(|text| &text.0["format"]["type"]) {
        None | Some(Value::Null) => Ok(()),
        Some(kind) if kind == "text" => Ok(()),
        Some(_) => Err(ApiError::unsupported("text.format", "a text.format other than text is not supported yet")),
    }
}

fn wanted(body: ResponsesRequest) -> Result<Wanted, ApiError> {
    let mut messages = Vec::new();
    messages.extend(body.instructions.map(|text| json!({"role": "system", "content": text})));
    messages.extend(body.input.into_messages()?);
    let tools = body.tools.map(|tools| tools.0).unwrap_or_default();
    let tools = tools.into_iter().map(|tool| input::function(tool.0)).collect::<Result<Vec<_>, _>>()?;
    let tools = match body.tool_choice.map(|choice| choice.0) {
        None | Some(Value::Null) => tools,
        Some(word) if word == "auto" => tools,
        Some(word) if word == "none" => Vec::new(),
        Some(_) => {
            let message = "tool_choice other than auto and none is not supported yet";
            return Err(ApiError::unsupported("tool_choice", message));
        }
    };
    let tools = (!tools.is_empty()).then_some(Value::Array(tools));
    Ok(Wanted {
        model: body.model,
        sources: vec![Source::Chat(Chat { messages, tools, ..Chat::default() })],
        max_tokens: Given::new("max_output_tokens", body.max_output_tokens),
        defaults: Sampling::default(),
        temperature: body.temperature,
        top_p: body.top_p,
        priority: body.priority,
        service_tier: body.service_tier,
        ..Wanted::default()
    })
}
