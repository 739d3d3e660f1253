//! `/apply-template`: a conversation as the model's template writes it.

use std::sync::Arc;

use axum::extract::{Extension, Request, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::app::App;
use crate::error::ApiError;
use crate::model::frontend::Caller;
use crate::protocols::openai::message::{MAX_MESSAGES, Message};
use crate::protocols::{json, parse, read_body};
use crate::request::bounded::{Json, List};
use crate::request::tools::{MAX_TOOLS, check_tools};
use crate::request::validate::{Beginning, Chat};

/// A conversation to be written as text.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct TemplateRequest {
    /// The model's name, or `default`.
    model: Option<String>,
    /// The conversation.
    #[schema(value_type = Vec<Message>, min_items = 1, max_items = 4096)]
    messages: List<Message, MAX_MESSAGES>,
    /// Functions that the conversation mentions.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<List<Json, MAX_TOOLS>>,
    /// Variables for the template.
    #[schema(value_type = Option<Object>)]
    chat_template_kwargs: Option<Json>,
    /// Whether the prompt opens a message of the assistant; true by default.
    add_generation_prompt: Option<bool>,
}

/// The prompt of a conversation as text.
pub(crate) async fn apply(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    read_body(&app, request, move |bytes, frontend| {
        let body: TemplateRequest = parse(bytes)?;
        frontend.select(body.model.as_deref(), &caller)?;
        let messages = body.messages.0.into_iter().map(Message::into_value).collect::<Result<_, _>>()?;
        let tools = body.tools.map(|tools| tools.0).unwrap_or_default();
        let tools = check_tools(tools.into_iter().map(|tool| tool.0).collect())?;
        let variables = match body.chat_template_kwargs {
            Some(Json(Value::Object(variables))) => Some(variables),
            _ => None,
        };
        let beginning = match body.add_generation_prompt {
            Some(false) => Beginning::NotOpened,
            None | Some(true) => Beginning::Opened,
        };
        let prompt = frontend.prompt_text(&Chat { messages, tools, variables, beginning, ..Chat::default() })?;
        Ok(json(&json!({"prompt": prompt})))
    })
    .await
}
