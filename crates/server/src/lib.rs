//! HTTP around a service: the protocols that clients use, keys, limits, metrics, the web page.
#![forbid(unsafe_code)]

mod answer;
mod app;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod http;
mod model;
mod observe;
mod openapi;
mod options;
mod os;
mod page;
mod protocols;
mod request;
mod routes;
mod server;

pub use answer::resume_log::ResumeLogOptions;
pub use error::ServerError;
pub use http::key_file::{KeyEntry, list_keys, new_key, revoke_key};
pub use model::Models;
pub use model::adapters::ServedAdapters;
pub use model::frontend::{ModelDetails, ServedModel};
pub use model::keep_alive::KeepAlive;
pub use model::on_demand::{LoadedModel, OnDemandModel, OnDemandModels};
pub use model::slot::{ModelSlot, Replaced};
pub use observe::fleet_board::FleetBoard;
pub use observe::logs::{LogFormat, start_logs};
pub use options::{Limits, ServerOptions, TlsFiles};
pub use routes::{Access, BodyType, ROUTES, Route};
pub use server::{Server, ServerStop};
