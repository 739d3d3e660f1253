//! `/tokenize` and `/detokenize`.

use std::sync::Arc;

use axum::extract::{Extension, Request, State};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::message::{MAX_MESSAGES, Message};
use crate::app::App;
use crate::error::ApiError;
use crate::model::frontend::Caller;
use crate::protocols::{answer, parse};
use crate::request::bounded::{Json, List};
use crate::request::tools::MAX_TOOLS;
use crate::request::validate::{Chat, Source};

/// A text or a conversation to be tokenised.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct TokenizeRequest {
    /// The model's name, or `default`.
    model: Option<String>,
    /// The text.
    #[serde(alias = "content", alias = "text")]
    prompt: Option<String>,
    /// Or the conversation.
    #[schema(value_type = Option<Vec<Message>>)]
    messages: Option<List<Message, MAX_MESSAGES>>,
    /// Functions that the conversation mentions.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<List<Json, MAX_TOOLS>>,
}

/// Tokens to be turned into text.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct DetokenizeRequest {
    /// The model's name, or `default`.
    model: Option<String>,
    /// The tokens.
    #[schema(value_type = Vec<u32>)]
    tokens: List<u32, { 1 << 18 }>,
}

#[derive(Serialize)]
struct Tokenized {
    count: usize,
    max_model_len: u32,
    tokens: Vec<u32>,
}

#[derive(Serialize)]
struct Detokenized {
    prompt: String,
}

/// Tokens of a text.
pub(crate) async fn tokenize(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    answer(&app, request, move |bytes, frontend, _| {
        let body: TokenizeRequest = parse(bytes)?;
        frontend.select(body.model.as_deref(), &caller)?;
        let source = match (body.prompt, body.messages) {
            (Some(text), None) => Source::Text(text),
            (None, Some(messages)) => {
                let messages = messages.0.into_iter().map(Message::into_value).collect::<Result<_, _>>()?;
                let tools = body.tools.map(|tools| tools.0.into_iter().map(|tool| tool.0).collect::<Value>());
                Source::Chat(Box::new(Chat { messages, tools, ..Chat::default() }))
            }
            _ => return Err(ApiError::invalid("prompt", "send either prompt or messages")),
        };
        let tokens = frontend.tokens(&source)?;
        Ok(Tokenized { count: tokens.len(), max_model_len: frontend.model.service.context(), tokens })
    })
    .await
}

/// Text of tokens.
pub(crate) async fn detokenize(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let most = app.bodies.limit();
    answer(&app, request, move |bytes, frontend, working| {
        let body: DetokenizeRequest = parse(bytes)?;
        frontend.select(body.model.as_deref(), &caller)?;
        frontend.check_count(body.tokens.0.len())?;
        let tokens = frontend.tokens(&Source::Tokens(body.tokens.0))?;
        let tokenizer = frontend.model.text.tokenizer();
        let length = tokens.iter().filter_map(|token| tokenizer.token_bytes(*token)).map(<[u8]>::len).sum::<usize>();
        // Every byte that is not text is shown as a character of three.
        let needed = 4 * length;
        if needed > most {
            let message = format!("the text of these tokens has {length} bytes; send fewer than {} at once", most / 4);
            return Err(ApiError::invalid("tokens", message));
        }
        working.reach(needed)?;
        let bytes = tokenizer.decode(&tokens);
        Ok(Detokenized { prompt: String::from_utf8_lossy(&bytes).into_owned() })
    })
    .await
}
