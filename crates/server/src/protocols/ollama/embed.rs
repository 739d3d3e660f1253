//! `/api/embed`, and `/api/embeddings` that came before it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Extension, Request, State};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::options;
use crate::answer::vectors::{TextHandling, VectorPrompt, Vectors, normalised, prompt_of, shortened_to};
use crate::app::App;
use crate::error::ApiError;
use crate::http::held::holding;
use crate::model::frontend::{Caller, ModelFrontend};
use crate::protocols::openai::embeddings::dimensions;
use crate::protocols::{parse, prepare};
use crate::request::bounded::Json;
use crate::request::prompts::Prompts;
use crate::request::validate::Source;

/// A request for embeddings.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct EmbedRequest {
    /// The model's name, or `default`.
    model: Option<String>,
    /// A text, or up to 256.
    #[schema(value_type = Object)]
    input: Prompts,
    /// Cut texts that are too long, instead of an error [default: true].
    truncate: Option<bool>,
    /// So many of the first numbers.
    dimensions: Option<u32>,
    /// How long the model stays in memory, if it is one of several; needs a key with `admin`.
    #[schema(value_type = Option<Object>)]
    keep_alive: Option<Json>,
}

/// The older request for one embedding.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct EmbeddingsRequest {
    /// The model's name, or `default`.
    model: Option<String>,
    /// The text.
    prompt: String,
    /// How long the model stays in memory, if it is one of several; needs a key with `admin`.
    #[schema(value_type = Option<Object>)]
    keep_alive: Option<Json>,
}

/// What both ask for.
struct Wanted {
    model: Option<String>,
    prompts: Vec<VectorPrompt>,
    dimensions: Option<usize>,
    keep_alive: Option<Json>,
}

/// What both are answered with.
struct Answered {
    model: String,
    rows: Vec<Vec<f32>>,
    tokens: usize,
    dimensions: Option<usize>,
}

#[derive(Serialize)]
struct Embeddings {
    model: String,
    embeddings: Vec<Vec<f32>>,
    total_duration: u64,
    load_duration: u64,
    prompt_eval_count: usize,
}

/// The embedding of every input, one long.
pub(crate) async fn embed(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let begin = Instant::now();
    respond(&app, (caller, request), wanted, move |answered| {
        let Answered { model, rows, tokens, dimensions } = answered;
        let width = dimensions.unwrap_or(usize::MAX);
        let rows: Vec<Vec<f32>> = rows.into_iter().map(|row| shortened_to(row, width)).collect();
        Embeddings {
            model,
            embeddings: rows,
            total_duration: begin.elapsed().as_nanos() as u64,
            load_duration: 0,
            prompt_eval_count: tokens,
        }
    })
    .await
}

/// The embedding of one text, one long.
pub(crate) async fn embeddings(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    respond(&app, (caller, request), wanted_alone, |mut answered| {
        BTreeMap::from([("embedding", answered.rows.pop().map(normalised).unwrap_or_default())])
    })
    .await
}

fn wanted(bytes: &[u8], frontend: &ModelFrontend) -> Result<Wanted, ApiError> {
    let body: EmbedRequest = parse(bytes)?;
    let handling = TextHandling { prompt: None, cut: body.truncate.unwrap_or(true) };
    let prompts = body.input.0.iter().map(|source| prompt_of(frontend, source, handling));
    let dimensions = dimensions(frontend, body.dimensions)?;
    Ok(Wanted {
        model: body.model,
        prompts: prompts.collect::<Result<_, _>>()?,
        dimensions,
        keep_alive: body.keep_alive,
    })
}

fn wanted_alone(bytes: &[u8], frontend: &ModelFrontend) -> Result<Wanted, ApiError> {
    let body: EmbeddingsRequest = parse(bytes)?;
    let dimensions = dimensions(frontend, None)?;
    let prompt = prompt_of(frontend, &Source::Text(body.prompt), TextHandling { prompt: None, cut: true })?;
    Ok(Wanted { model: body.model, prompts: vec![prompt], dimensions, keep_alive: body.keep_alive })
}

async fn respond<T: Serialize>(
    app: &App,
    (caller, request): (Caller, Request),
    read: fn(&[u8], &ModelFrontend) -> Result<Wanted, ApiError>,
    answer: impl FnOnce(Answered) -> T + Send + 'static,
) -> Result<Response, ApiError> {
    let reader = caller.clone();
    let ((wanted, adapter, frontend), memory) = prepare(app, request, move |bytes, frontend| {
        let wanted = read(bytes, &frontend)?;
        let adapter = frontend.select(wanted.model.as_deref(), &reader)?;
        options::keep(&frontend, wanted.keep_alive.as_ref(), &reader)?;
        Ok((wanted, adapter, frontend))
    })
    .await?;
    frontend.count(adapter.as_ref());
    let vectors = Vectors::compute(&frontend, wanted.prompts, (&caller, &adapter), memory.another()).await?;
    let (model, dimensions) = (frontend.answering(wanted.model.as_deref()), wanted.dimensions);
    let response = vectors.answer(move |rows, tokens| answer(Answered { model, rows, tokens, dimensions })).await?;
    Ok(holding(response, memory))
}
