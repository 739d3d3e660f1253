//! Many requests on one model: jobs go in through a handle, updates come out through their sinks.

mod active_job;
pub(crate) mod answer;
mod cache_log;
mod embedding;
mod handle;
mod in_flight;
mod job;
mod logprobs;
mod memory_gauge;
mod options;
mod pace;
mod panics;
mod queue;
mod runner;
pub mod schedule;
mod scores;
mod snapshot;
pub(crate) mod speculate;
pub mod spill;

pub use cache_log::{CacheChange, CacheEvent};
pub use handle::{CacheLayout, Service, ServiceHandle, SubmitError};
pub use job::{
    Alternative, Generation, Job, JobId, JobOutcome, JobSink, NewToken, Priority, Score, Task, Tenant, TokenLogprobs,
    Update,
};
pub use options::{ServiceOptions, StepCosts};
pub use snapshot::Snapshot;
