//! Many requests on one model: jobs go in through a handle, updates come out through their sinks.

mod answer;
mod chance;
mod embedding;
mod guess;
mod handle;
mod job;
mod lanes;
mod live;
mod options;
mod pace;
mod queue;
mod read;
mod run;
pub mod schedule;
mod snapshot;
mod speculate;

pub use handle::{Service, ServiceHandle, SubmitError};
pub use job::{
    Alternative, Generation, Job, JobId, JobOutcome, JobSink, NewToken, Priority, Task, Tenant, TokenChance, Update,
};
pub use options::ServiceOptions;
pub use snapshot::Snapshot;
