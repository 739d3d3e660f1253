//! Measures the quality and the speed of an engine: perplexity, divergence, logits for comparison, speed and where it goes; load on a server.
#![forbid(unsafe_code)]

mod batch;
mod ceilings;
mod divergence;
mod error;
pub mod load;
mod logits;
mod npy;
mod os;
mod perplexity;
mod profile;
mod speed;
mod windows;

pub use batch::{BatchPlan, measure_batch};
pub use ceilings::{Ceilings, ThreadCeilings, disk_speed, largest_part, plain_memory};
pub use divergence::{Divergence, Reference};
pub use error::EvalError;
pub use logits::write_logits;
pub use npy::NpyWriter;
pub use os::peak_memory_bytes;
pub use perplexity::{Perplexity, perplexity};
pub use profile::{PhaseProfile, profile_speed, write_trace};
pub use speed::{SpeedPlan, SpeedRun, Spread, measure_speed};
pub use windows::TextWindows;
