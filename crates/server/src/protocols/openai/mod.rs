//! OpenAI's protocols, and routes in their style.

pub(crate) mod adapters;
pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod embeddings;
pub(crate) mod message;
pub(crate) mod models;
pub(crate) mod report;
pub(crate) mod rerank;
pub(crate) mod responses;
pub(crate) mod tokens;
