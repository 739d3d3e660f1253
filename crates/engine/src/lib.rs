//! Runs requests on one pipeline: opening models, sessions, sampling, text output.
#![forbid(unsafe_code)]

mod adapters;
mod embedding_text;
mod error;
mod exponential;
mod generate;
mod infill;
mod model_text;
mod open;
mod os;
mod pipeline;
mod random;
mod request;
mod sampler;
mod sampling;
pub mod service;
mod session;
mod special_tokens;
mod stage_pages;
mod suggested_sampling;
mod token_limits;
mod vocabulary;

use session::LOGITS_AT_ONCE;

pub use adapters::{AdapterHandle, AdapterLimits, AdapterStatus, AdapterStore};
pub use cascadia_model::AdapterId;
pub use error::EngineError;
pub use generate::generate;
pub use infill::InfillTokens;
pub use model_text::{Message, ModelText, chat_template};
pub use open::{CacheSize, Engine, OpenOptions, Source};
pub use os::{private_file, private_folder};
pub use pipeline::Pipeline;
pub use request::{Event, FinishReason, Flow, Outcome, Request, Sink, Stats};
pub use sampler::Sampler;
pub use sampling::Sampling;
pub use session::Session;
pub use special_tokens::SpecialIds;
pub use suggested_sampling::SuggestedSampling;
