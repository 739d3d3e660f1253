//! Measures the quality and the speed of an engine: perplexity, logits for comparison, prefill and decode speed.
#![forbid(unsafe_code)]

mod error;
mod logits;
mod npy;
mod os;
mod perplexity;
mod speed;

pub use error::EvalError;
pub use logits::write_logits;
pub use npy::NpyWriter;
pub use os::peak_memory_bytes;
pub use perplexity::{Perplexity, TextWindows, perplexity};
pub use speed::{SpeedPlan, SpeedRun, Spread, measure_speed};
