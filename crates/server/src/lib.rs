//! HTTP around a service: the doors every client speaks, keys, limits, metrics, the web page.
#![forbid(unsafe_code)]

mod accept;
mod answer;
mod anthropic;
mod app;
mod base64;
mod body;
mod bounded;
mod calls;
mod desk;
mod door;
mod error;
mod form;
mod guard;
mod held;
mod jobs;
mod keys;
mod logs;
mod metrics;
mod ollama;
mod openai;
mod openapi;
mod operations;
mod options;
mod os;
mod page;
mod parts;
mod places;
mod prompts;
mod queue;
mod routes;
mod server;
mod stall;
mod status;
mod stream;
mod tls;
mod traces;
mod validate;

pub use desk::{ModelDetails, ServedModel};
pub use error::ServerError;
pub use keys::{KeyEntry, new_key};
pub use logs::{LogFormat, start_logs};
pub use options::{Limits, ServerOptions, TlsFiles};
pub use routes::{Access, ROUTES, Route};
pub use server::{Server, ServerStop};
