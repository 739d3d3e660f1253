//! Ollama's protocols.

pub(crate) mod chat;
pub(crate) mod clock;
pub(crate) mod embed;
pub(crate) mod generate;
pub(crate) mod models;
pub(crate) mod options;
