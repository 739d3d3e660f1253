//! Writes models in other number formats: what is done once, before a model runs.
#![forbid(unsafe_code)]

mod cache;
mod convert;
mod error;
mod importance;
mod mix_search;
mod pack;
mod recipe;

pub use cache::QuantizedCache;
pub use convert::{MergeJob, QuantizeJob, QuantizeProgress, QuantizeSummary, ShardJob, merge, quantize, write_shard};
pub use error::QuantizeError;
pub use importance::Importance;
pub use mix_search::{Depth, FoundMix, Measured, MixSearch, SearchProgress};
pub use pack::{PackJob, pack};
pub use recipe::{Keep, Recipe};
