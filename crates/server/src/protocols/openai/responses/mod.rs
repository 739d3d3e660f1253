//! `/v1/responses`.

mod event_writer;
mod input;
pub(crate) mod store;

use std::sync::Arc;

use axum::extract::{Extension, Path, State};
use axum::response::Response;
use cascadia_engine::service::Tenant;
use cascadia_engine::{FinishReason, Sampling};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::answer::event_stream::{EventWriter, Framing};
use crate::answer::segments::{Segment, SegmentKind};
use crate::answer::{Answer, AnswerEnd, TokenLogprob, Usage};
use crate::app::App;
use crate::error::{ApiError, ErrorKind};
use crate::model::frontend::{Caller, ModelFrontend, unix_seconds};
use crate::protocols::openai::report::chat_logprobs;
use crate::protocols::tool_calls::call_id;
use crate::protocols::{Protocol, RequestContext, json as json_response, shortest};
use crate::request::bounded::{Json, List, Metadata};
use crate::request::output_format::output_format;
use crate::request::reasoning::effort_variables;
use crate::request::sampling::{
    HasSampling, SamplingField, SamplingValues, TEMPERATURE, TOP_P, WithSampling, not_offered,
};
use crate::request::tools::{MAX_TOOLS, check_tools, must_call};
use crate::request::validate::{Chat, Given, MustCall, RawRequest, Source, range, shortened};
use input::Input;
use store::{ResponseStore, StoredResponse};

/// What asks for log-probabilities.
const LOGPROBS: &str = "message.output_text.logprobs";

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
    /// Whether a response may have more than one call.
    parallel_tool_calls: Option<bool>,
    /// `effort`: `none`, `minimal`, `low`, `medium`, `high` or `xhigh`, for templates that know it.
    #[schema(value_type = Option<Object>)]
    reasoning: Option<Json>,
    /// What else to report: `message.output_text.logprobs`.
    #[schema(value_type = Option<Vec<String>>)]
    include: Option<List<String, 16>>,
    /// Of how many most likely tokens at each position, where log-probabilities are included.
    #[schema(minimum = 0, maximum = 20)]
    top_logprobs: Option<i64>,
    /// Keep the response for a while, unless false.
    store: Option<bool>,
    /// Returned as it is: at most 16 texts of 512 characters, under names of 64.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Metadata>,
    /// `high`, `normal` or `low`.
    priority: Option<String>,
    /// `auto`, `default`, `flex` or `priority`.
    service_tier: Option<String>,
    /// An earlier response to continue from, which must still be kept.
    previous_response_id: Option<String>,
    /// A stored conversation; not supported.
    #[schema(value_type = Option<Object>)]
    conversation: Option<Json>,
    /// Answer later; not supported.
    background: Option<bool>,
}

impl HasSampling for ResponsesRequest {
    const FIELDS: &'static [SamplingField] =
        &[TEMPERATURE, TOP_P, not_offered("truncation", &["\"disabled\""]), not_offered("prompt", &[])];
}

/// What is remembered of a request until its response is complete.
pub(crate) struct ResponsesProtocol {
    frontend: Arc<ModelFrontend>,
    model: String,
    /// Where it is kept, and what leads to it.
    keeping: Option<Keeping>,
    with_logprobs: bool,
    id: String,
    is_streamed: bool,
    /// The fields that every response has.
    head: Value,
}

/// Where a response is kept, and the conversation without it.
struct Keeping {
    store: Arc<ResponseStore>,
    tenant: Tenant,
    previous: Option<Arc<StoredResponse>>,
    /// The messages of this request.
    messages: Vec<Value>,
}

impl Protocol for ResponsesProtocol {
    type Body = WithSampling<ResponsesRequest>;

    fn read(request: Self::Body, context: &RequestContext) -> Result<(RawRequest, ResponsesProtocol), ApiError> {
        let frontend = &context.frontend;
        let WithSampling { body, sampling } = request;
        check_supported(&body)?;
        let previous = match &body.previous_response_id {
            Some(id) => Some(find(context, id).ok_or_else(|| not_kept("previous_response_id", id))?),
            None => None,
        };
        let (model, head) = (frontend.answering(body.model.as_deref()), head(&body, &sampling, frontend));
        let (is_streamed, is_kept) = (body.stream == Some(true), body.store != Some(false));
        let with_logprobs = includes_logprobs(&body)?;
        let (mut request, messages) = raw_request(body, sampling)?;
        if let ([Source::Chat(chat)], Some(previous)) = (request.sources.as_mut_slice(), &previous) {
            // After the instructions, which hold for one response only.
            let at = chat.messages.len() - messages.len();
            chat.messages.splice(at..at, previous.messages.iter().cloned());
        }
        let keeping = || {
            let (store, tenant) = (Arc::clone(&context.responses), context.caller.tenant);
            Keeping { store, tenant, previous, messages }
        };
        let protocol = ResponsesProtocol {
            frontend: Arc::clone(frontend),
            model,
            keeping: is_kept.then(keeping),
            with_logprobs,
            id: "resp_".to_owned(),
            is_streamed,
            head,
        };
        Ok((request, protocol))
    }

    fn set_id(&mut self, id: &str) {
        self.id.push_str(id);
    }

    fn framing(&self) -> Option<Framing> {
        self.is_streamed.then_some(Framing::Events)
    }

    fn response(mut self, answers: Vec<Answer>, used: Usage) -> Value {
        let Some(mut answer) = answers.into_iter().next() else { return self.response_object(&[], None, Some(used)) };
        let (end, logprobs) = (answer.end.clone(), std::mem::take(&mut answer.logprobs));
        let segments = Segment::all(answer);
        let mut object = self.response_object(&segments, Some(&end), Some(used));
        if self.with_logprobs {
            let items = object["output"].as_array_mut().into_iter().flatten();
            let texts = items.filter(|item| item["type"] == "message");
            texts.for_each(|item| item["content"][0]["logprobs"] = self.logprobs(&logprobs));
        }
        self.keep(&segments, &object);
        object
    }

    fn event_writer(self) -> Box<dyn EventWriter> {
        Box::new(event_writer::ResponsesEventWriter::new(self))
    }
}

impl ResponsesProtocol {
    /// Log-probabilities as items have them.
    fn logprobs(&self, logprobs: &[TokenLogprob]) -> Value {
        chat_logprobs(self.frontend.model.text.tokenizer(), logprobs)["content"].take()
    }

    /// Keeps the response with its conversation, if it is to be kept.
    fn keep(&mut self, segments: &[Segment], response: &Value) {
        let Some(Keeping { store, tenant, previous, messages }) = self.keeping.take() else { return };
        let before = previous.iter().flat_map(|previous| previous.messages.iter().cloned());
        let messages = before.chain(messages).chain([self.assistant_message(segments)]).collect();
        store.keep(tenant, &self.id, StoredResponse { response: response.clone(), messages });
    }

    /// The answer as templates read it.
    fn assistant_message(&self, segments: &[Segment]) -> Value {
        let text: String = segments.iter().filter(|s| s.kind == SegmentKind::Text).map(|s| s.text.as_str()).collect();
        let calls = segments.iter().filter(|segment| segment.kind == SegmentKind::ToolCall).map(|segment| {
            let function = json!({"name": segment.name, "arguments": segment.text});
            json!({"id": call_id(&self.id, 0, segment.index), "type": "function", "function": function})
        });
        let calls: Vec<Value> = calls.collect();
        match calls.is_empty() {
            true => json!({"role": "assistant", "content": text}),
            false => json!({"role": "assistant", "content": text, "tool_calls": calls}),
        }
    }

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

/// The response with this id, if it is still kept for this caller.
fn find(context: &RequestContext, id: &str) -> Option<Arc<StoredResponse>> {
    context.responses.find(context.caller.tenant, id)
}

fn not_kept(field: &str, id: &str) -> ApiError {
    let message = format!(
        "there is no response `{}`; responses are kept in memory for a while, so send the whole conversation as input",
        shortened(id)
    );
    ApiError::invalid(field, message)
}

/// Shows a response that is kept.
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let found = app.responses.find(caller.tenant, &id);
    found.map(|stored| json_response(&stored.response)).ok_or_else(|| unknown(&id))
}

/// Forgets a response.
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let removed = app.responses.remove(caller.tenant, &id);
    removed
        .map(|_| json_response(&json!({"id": id, "object": "response", "deleted": true})))
        .ok_or_else(|| unknown(&id))
}

fn unknown(id: &str) -> ApiError {
    ApiError { kind: ErrorKind::NoRoute, ..not_kept("id", id) }
}

/// Whether log-probabilities are to be reported; an error if something is that there is not.
fn includes_logprobs(body: &ResponsesRequest) -> Result<bool, ApiError> {
    let mut logprobs = false;
    for wanted in body.include.iter().flat_map(|include| &include.0) {
        match wanted.as_str() {
            LOGPROBS => logprobs = true,
            // Reasoning is in the response as it is; the others are of tools and pictures, which no response here has.
            "reasoning.encrypted_content"
            | "file_search_call.results"
            | "web_search_call.results"
            | "web_search_call.action.sources"
            | "computer_call_output.output.image_url"
            | "code_interpreter_call.outputs"
            | "message.input_image.image_url" => {}
            other => {
                let message = format!("include has `{}`, which is not offered; leave it out", shortened(other));
                return Err(ApiError::unsupported("include", message));
            }
        }
    }
    match body.top_logprobs.map(|count| range::ALTERNATIVES.check_whole(count)).transpose()? {
        Some(1..) if !logprobs => {
            Err(ApiError::invalid("top_logprobs", format!("top_logprobs needs `{LOGPROBS}` in include")))
        }
        _ => Ok(logprobs),
    }
}

/// The fields that every response to this request has.
fn head(body: &ResponsesRequest, sampling: &SamplingValues, frontend: &ModelFrontend) -> Value {
    let defaults = frontend.defaults(Sampling::default());
    let effort = body.reasoning.as_ref().map_or(&Value::Null, |reasoning| &reasoning.0["effort"]);
    json!({
        "object": "response",
        "created_at": unix_seconds(),
        "error": null,
        "incomplete_details": null,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata.clone().unwrap_or_default(),
        "parallel_tool_calls": body.parallel_tool_calls != Some(false),
        "previous_response_id": body.previous_response_id,
        "reasoning": {"effort": effort, "summary": null},
        "service_tier": "default",
        "store": body.store != Some(false),
        "temperature": sampling.number(&TEMPERATURE).unwrap_or_else(|| shortest(defaults.temperature)),
        "text": {"format": {"type": "text"}},
        "tool_choice": body.tool_choice.as_ref().map_or_else(|| json!("auto"), |choice| choice.0.clone()),
        "tools": body.tools.iter().flat_map(|tools| tools.0.iter().map(|tool| tool.0.clone())).collect::<Vec<_>>(),
        "top_logprobs": body.top_logprobs.unwrap_or(0),
        "top_p": sampling.number(&TOP_P).unwrap_or_else(|| shortest(defaults.top_p)),
        "truncation": "disabled",
        "usage": null,
    })
}

fn check_supported(body: &ResponsesRequest) -> Result<(), ApiError> {
    if body.conversation.as_ref().is_some_and(|conversation| !conversation.0.is_null()) {
        let message = "conversation: no conversations are kept here; send previous_response_id, or all of it as input";
        return Err(ApiError::unsupported("conversation", message));
    }
    if body.background == Some(true) {
        return Err(ApiError::unsupported("background", "background is not supported; wait for the response"));
    }
    Ok(())
}

/// The request in the validator's terms, and its messages without the instructions.
fn raw_request(body: ResponsesRequest, sampling: SamplingValues) -> Result<(RawRequest, Vec<Value>), ApiError> {
    let new_messages = body.input.into_messages()?;
    let mut messages = Vec::new();
    messages.extend(body.instructions.map(|text| json!({"role": "system", "content": text})));
    messages.extend(new_messages.iter().cloned());
    let tools = body.tools.map(|tools| tools.0).unwrap_or_default();
    let tools = check_tools(tools.into_iter().map(|tool| input::function(tool.0)).collect())?;
    let (tools, must_call) = match must_call(body.tool_choice.as_ref().map(|choice| &choice.0))? {
        Some(must_call) => (tools, must_call),
        None => (None, MustCall::Nothing),
    };
    let variables = match body.reasoning.as_ref().and_then(|reasoning| reasoning.0["effort"].as_str()) {
        Some(effort) => Some(effort_variables("reasoning.effort", effort)?),
        None => None,
    };
    let one_call = body.parallel_tool_calls == Some(false);
    let includes = |include: &List<String, 16>| include.0.iter().any(|wanted| wanted == LOGPROBS);
    let alternatives = body.include.as_ref().filter(|include| includes(include));
    let chat = Chat { messages, tools, variables, must_call, one_call, ..Chat::default() };
    let request = RawRequest {
        model: body.model,
        sources: vec![Source::Chat(Box::new(chat))],
        alternatives: alternatives.map(|_| Given { name: "top_logprobs", value: body.top_logprobs.unwrap_or(0) }),
        format: output_format("text.format", body.text.as_ref().map(|text| &text.0["format"]))?,
        max_tokens: Given::new("max_output_tokens", body.max_output_tokens),
        defaults: Sampling::default(),
        sampling,
        priority: body.priority,
        service_tier: body.service_tier,
        ..RawRequest::default()
    };
    Ok((request, new_messages))
}
