//! `/v1/embeddings`.

use std::sync::Arc;

use axum::extract::{Extension, Request, State};
use axum::response::Response;
use base64::prelude::{BASE64_STANDARD, Engine};
use cascadia_engine::AdapterHandle;
use cascadia_engine::service::Update;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::answer::jobs::{JobNumbers, Jobs};
use crate::app::App;
use crate::error::{ApiError, ErrorKind};
use crate::http::held::holding;
use crate::model::frontend::{Caller, ModelFrontend};
use crate::protocols::{parse, prepare, send};
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
    /// Not supported: the model has one width.
    dimensions: Option<i64>,
}

/// How numbers are written.
#[derive(Clone, Copy)]
enum Encoding {
    Float,
    Base64,
}

/// The embedding of every input, normalised.
pub(crate) async fn embed(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let frontend = app.model.current();
    let (for_reading, reader) = (Arc::clone(&frontend), caller.clone());
    let ((encoding, prompts, (adapter, model)), memory) = prepare(&app, request, move |bytes| {
        let body: EmbeddingRequest = parse(bytes)?;
        let adapter = for_reading.select(body.model.as_deref(), &reader)?;
        let encoding = encoding(&body)?;
        let prompts = body.input.0.iter().map(|source| for_reading.tokens(source)).collect::<Result<Vec<_>, _>>()?;
        Ok((encoding, prompts, (adapter, for_reading.answering(body.model.as_deref()))))
    })
    .await?;
    frontend.count(adapter.as_ref());
    let used: usize = prompts.iter().map(Vec::len).sum();
    let (mut vectors, mut numbers, mut working) = (Vec::with_capacity(prompts.len()), Vec::new(), memory.another());
    // One after the other: a long list takes one slot of the queue, like any other request.
    for prompt in prompts {
        let jobs = submit(&frontend, prompt, (&caller, &adapter)).await?;
        numbers.push(jobs.numbers().0);
        let vector = embedding(jobs).await?;
        // The number itself, and as a value of JSON.
        working.reach(working.bytes() + vector.len() * (size_of::<f32>() + size_of::<Value>()))?;
        vectors.push(vector);
    }
    let usage = json!({"prompt_tokens": used, "total_tokens": used});
    let list = move || json!({"object": "list", "model": model, "data": data(vectors, encoding), "usage": usage});
    let mut response = send(working, list).await?;
    response.extensions_mut().insert(JobNumbers(numbers.join(",")));
    Ok(holding(response, memory))
}

fn encoding(body: &EmbeddingRequest) -> Result<Encoding, ApiError> {
    if body.dimensions.is_some() {
        return Err(ApiError::unsupported("dimensions", "dimensions is not supported; leave it out"));
    }
    match body.encoding_format.as_deref() {
        None | Some("float") => Ok(Encoding::Float),
        Some("base64") => Ok(Encoding::Base64),
        Some(other) => {
            let message = format!("encoding_format is `{}`; use float or base64", shortened(other));
            Err(ApiError::invalid("encoding_format", message))
        }
    }
}

/// Submits the job of one input. The weights of an adapter may be read for it, which no thread that serves connections
/// waits for.
async fn submit(
    frontend: &Arc<ModelFrontend>,
    prompt: Vec<u32>,
    (caller, adapter): (&Caller, &Option<AdapterHandle>),
) -> Result<Jobs, ApiError> {
    if adapter.is_none() {
        return frontend.submit_embedding(prompt, caller, None);
    }
    let (frontend, caller, adapter) = (Arc::clone(frontend), caller.clone(), adapter.clone());
    let submitted = tokio::task::spawn_blocking(move || frontend.submit_embedding(prompt, &caller, adapter)).await;
    submitted.unwrap_or_else(|_| Err(not_computed()))
}

async fn embedding(mut jobs: Jobs) -> Result<Vec<f32>, ApiError> {
    while let Some((_, update)) = jobs.updates.next().await {
        match update {
            Update::Embedded(vector) => return Ok(normalised(vector)),
            Update::Failed(error) => return Err(error.into()),
            _ => {}
        }
    }
    Err(not_computed())
}

fn not_computed() -> ApiError {
    ApiError::new(ErrorKind::Internal, "the embedding was not computed; see the server's log")
}

fn normalised(mut vector: Vec<f32>) -> Vec<f32> {
    let length = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
    }
    vector
}

fn data(vectors: Vec<Vec<f32>>, encoding: Encoding) -> Vec<Value> {
    let numbered = vectors.into_iter().enumerate();
    numbered
        .map(|(index, vector)| json!({"object": "embedding", "index": index, "embedding": encoded(&vector, encoding)}))
        .collect()
}

fn encoded(vector: &[f32], encoding: Encoding) -> Value {
    match encoding {
        Encoding::Float => vector.into(),
        Encoding::Base64 => {
            let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
            BASE64_STANDARD.encode(&bytes).into()
        }
    }
}
