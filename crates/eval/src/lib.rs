//! Measures the quality and the speed of an engine: perplexity, divergence and drift, logits for comparison, speed and
//! where it goes, latency, memory; load on a server. Reports of measurements can be compared.
#![forbid(unsafe_code)]

mod accumulation;
mod batch;
mod ceilings;
mod divergence;
mod drift;
mod error;
#[cfg(test)]
mod fixture;
mod latency;
pub mod load;
mod logits;
mod memory;
mod npy;
mod os;
mod perplexity;
mod probes;
mod profile;
mod random;
pub mod report;
mod speed;
mod two_caches;
mod windows;

pub use accumulation::{AccumulationPlan, measure_accumulation};
pub use batch::{AdapterCost, BatchPlan, measure_adapters, measure_batch};
pub use ceilings::{Ceilings, ThreadCeilings, disk_speed, largest_part, plain_memory};
pub use divergence::{Divergence, Reference};
pub use drift::{Drift, DriftPlan, full_precision};
pub use error::EvalError;
pub use latency::{Latency, LatencyPlan};
pub use logits::write_logits;
pub use memory::{KvMemory, MemoryPlan};
pub use npy::NpyWriter;
pub use os::{held_memory_bytes, peak_memory_bytes};
pub use perplexity::{Perplexity, perplexity};
pub use profile::{PhaseProfile, profile_speed, write_trace};
pub use speed::{SpeedPlan, SpeedRun, Spread, measure_speed};
pub use two_caches::TwoCaches;
pub use windows::TextWindows;
