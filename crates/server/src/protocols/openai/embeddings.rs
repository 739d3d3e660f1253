//! `/v1/embeddings`.

use std::sync::Arc;

use axum::extract::{Extension, Request, State};
use axum::response::Response;
use base64::prelude::{BASE64_STANDARD, Engine};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::answer::vectors::{TextHandling, Vectors, prompt_of, shortened_to};
use crate::app::App;
use crate::error::ApiError;
use crate::http::held::holding;
use crate::model::frontend::{Caller, ModelFrontend};
use crate::protocols::{parse, prepare};
use crate::request::prompts::Prompts;
use crate::request::validate::shortened;

/// A request for embeddings.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct EmbeddingRequest {
    /// The model's name or `default`, alone or with an adapter: `model:adapter`.
    model: Option<String>,
    /// A text, a list of tokens, or up to 256 of either.
    #[schema(value_type = Object)]
    input: Prompts,
    /// `float` or `base64`.
    encoding_format: Option<String>,
    /// So many of the first numbers, one long again: for models that were trained for it.
    dimensions: Option<u32>,
    /// Which of the model's own prompts comes before every text, such as `query`.
    prompt_name: Option<String>,
    /// Cut texts that are too long, instead of an error.
    #[serde(default)]
    truncate: bool,
}

#[derive(Serialize)]
struct EmbeddingList {
    object: &'static str,
    model: String,
    data: Vec<Embedding>,
    usage: Value,
}

#[derive(Serialize)]
struct Embedding {
    object: &'static str,
    index: usize,
    embedding: Numbers,
}

/// The numbers of an embedding, as they are written: many of them as values of JSON would take eight times the memory.
#[derive(Serialize)]
#[serde(untagged)]
enum Numbers {
    Float(Vec<f32>),
    Base64(String),
}

/// How numbers are written.
#[derive(Clone, Copy)]
enum Encoding {
    Float,
    Base64,
}

/// The embedding of every input.
pub(crate) async fn embed(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let reader = caller.clone();
    let prepared = prepare(&app, request, move |bytes, frontend| {
        let body: EmbeddingRequest = parse(bytes)?;
        let adapter = frontend.select(body.model.as_deref(), &reader)?;
        let encoding = encoding(&body)?;
        let dimensions = dimensions(&frontend, body.dimensions)?;
        let handling = TextHandling { prompt: body.prompt_name.as_deref(), cut: body.truncate };
        let prompts = body.input.0.iter().map(|source| prompt_of(&frontend, source, handling));
        let prompts = prompts.collect::<Result<Vec<_>, _>>()?;
        let model = frontend.answering(body.model.as_deref());
        Ok((encoding, prompts, (adapter, model, dimensions), frontend))
    });
    let ((encoding, prompts, (adapter, model, dimensions), frontend), memory) = prepared.await?;
    frontend.count(adapter.as_ref());
    let vectors = Vectors::compute(&frontend, prompts, (&caller, &adapter), memory.another()).await?;
    let list = move |rows: Vec<Vec<f32>>, tokens| {
        let rows = rows.into_iter().map(|row| match dimensions {
            Some(count) => shortened_to(row, count),
            None => row,
        });
        let embedding = |(index, row)| Embedding { object: "embedding", index, embedding: Numbers::new(row, encoding) };
        let data = rows.enumerate().map(embedding).collect();
        EmbeddingList { object: "list", model, data, usage: json!({"prompt_tokens": tokens, "total_tokens": tokens}) }
    };
    let response = vectors.answer(list).await?;
    Ok(holding(response, memory))
}

/// The numbers of an embedding that are wanted; an error where the model makes none, or fewer.
pub(crate) fn dimensions(frontend: &ModelFrontend, wanted: Option<u32>) -> Result<Option<usize>, ApiError> {
    let Some(width) = frontend.model.service.embedding_width() else {
        let message = "this model ranks documents and makes no embeddings; use /v1/rerank, or serve another model";
        return Err(ApiError::unsupported("model", message));
    };
    match wanted.map(|wanted| wanted as usize) {
        Some(wanted) if !(1..=width).contains(&wanted) => {
            let message = format!("dimensions is {wanted}, but an embedding of this model has {width} numbers");
            Err(ApiError::invalid("dimensions", message))
        }
        wanted => Ok(wanted),
    }
}

fn encoding(body: &EmbeddingRequest) -> Result<Encoding, ApiError> {
    match body.encoding_format.as_deref() {
        None | Some("float") => Ok(Encoding::Float),
        Some("base64") => Ok(Encoding::Base64),
        Some(other) => {
            let message = format!("encoding_format is `{}`; use float or base64", shortened(other));
            Err(ApiError::invalid("encoding_format", message))
        }
    }
}

impl Numbers {
    fn new(vector: Vec<f32>, encoding: Encoding) -> Numbers {
        match encoding {
            Encoding::Float => Numbers::Float(vector),
            Encoding::Base64 => {
                let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
                Numbers::Base64(BASE64_STANDARD.encode(&bytes))
            }
        }
    }
}
