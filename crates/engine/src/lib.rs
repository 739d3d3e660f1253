//! Runs requests on one pipeline: opening models, sessions, sampling, text output, quantising.
#![forbid(unsafe_code)]

mod convert;
mod error;
mod exponential;
mod generate;
mod importance;
mod mix_search;
mod model_text;
mod open;
mod pack;
mod pipeline;
mod random;
mod recipe;
mod request;
mod sampler;
mod sampling;
pub mod service;
mod session;
mod special_tokens;
mod vocabulary;

use session::LOGITS_AT_ONCE;

pub use convert::{QuantizeJob, QuantizeProgress, QuantizeSummary, ShardJob, quantize, write_shard};
pub use error::EngineError;
pub use generate::generate;
pub use importance::Importance;
pub use mix_search::{Depth, FoundMix, Measured, MixSearch, SearchProgress};
pub use model_text::{Message, ModelText};
pub use open::{CacheSize, Engine, OpenOptions, Source};
pub use pack::{PackJob, pack};
pub use pipeline::{Pipeline, PipelineLimits};
pub use recipe::{Keep, Recipe};
pub use request::{Event, FinishReason, Flow, Outcome, Request, Sink, Stats};
pub use sampler::Sampler;
pub use sampling::Sampling;
pub use session::Session;
pub use special_tokens::SpecialIds;
