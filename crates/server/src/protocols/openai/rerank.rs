//! `/v1/rerank`, as Jina's and Cohere's clients ask.

use std::sync::Arc;

use axum::extract::{Extension, Request, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::answer::vectors::{Vectors, pair_of};
use crate::app::App;
use crate::error::ApiError;
use crate::http::held::holding;
use crate::model::frontend::Caller;
use crate::protocols::{parse, prepare};
use crate::request::bounded::List;

/// The most documents of a request.
const MAX_DOCUMENTS: usize = 1024;

/// A request to rank documents.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct RerankRequest {
    /// The model's name, or `default`.
    model: Option<String>,
    /// What is sought.
    query: String,
    /// Texts, or objects with a `text`; up to 1024.
    #[schema(value_type = Vec<Object>)]
    documents: List<Document, MAX_DOCUMENTS>,
    /// The most results [default: all].
    top_n: Option<usize>,
    /// Whether results contain the documents [default: false].
    #[serde(default)]
    return_documents: bool,
    /// Cut texts that are too long, instead of an error.
    #[serde(default)]
    truncate: bool,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Document {
    Text(String),
    Object { text: String },
}

impl Document {
    fn text(&self) -> &str {
        match self {
            Document::Text(text) | Document::Object { text } => text,
        }
    }
}

/// How well every document answers the query, the best first.
pub(crate) async fn rerank(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let reader = caller.clone();
    let ((body, prompts, model, frontend), memory) = prepare(&app, request, move |bytes, frontend| {
        let body: RerankRequest = parse(bytes)?;
        frontend.select(body.model.as_deref(), &reader)?;
        if frontend.model.service.scores() != Some(1) {
            let message = "this model does not rank; serve a cross-encoder, such as BAAI/bge-reranker-v2-m3";
            return Err(ApiError::unsupported("model", message));
        }
        if body.documents.0.is_empty() {
            return Err(ApiError::invalid("documents", "documents is empty; send at least one"));
        }
        let pair = |document: &Document| pair_of(&frontend, [body.query.as_str(), document.text()], body.truncate);
        let prompts = body.documents.0.iter().map(pair).collect::<Result<Vec<_>, _>>()?;
        let model = frontend.answering(body.model.as_deref());
        Ok((body, prompts, model, frontend))
    })
    .await?;
    let vectors = Vectors::compute(&frontend, prompts, (&caller, &None), memory.another()).await?;
    let response = vectors.answer(move |rows, tokens| {
        let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
        json!({"object": "list", "model": model, "results": results(&body, &rows), "usage": usage})
    });
    Ok(holding(response.await?, memory))
}

/// The documents that are wanted, the best first.
fn results(body: &RerankRequest, rows: &[Vec<f32>]) -> Vec<Value> {
    let mut ranked: Vec<(usize, f64)> = rows.iter().map(|row| relevance(row[0])).enumerate().collect();
    // Equal ones keep their order.
    ranked.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    ranked.truncate(body.top_n.unwrap_or(usize::MAX));
    let result = |(index, relevance): (usize, f64)| {
        let mut result = json!({"index": index, "relevance_score": relevance});
        if body.return_documents {
            result["document"] = json!({"text": body.documents.0[index].text()});
        }
        result
    };
    ranked.into_iter().map(result).collect()
}

/// A logit as a number between zero and one.
fn relevance(logit: f32) -> f64 {
    1.0 / (1.0 + libm::exp(-f64::from(logit)))
}
