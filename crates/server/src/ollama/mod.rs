//! The doors that Ollama's clients use.

pub(crate) mod chat;
pub(crate) mod clock;
pub(crate) mod generate;
pub(crate) mod models;
pub(crate) mod options;
