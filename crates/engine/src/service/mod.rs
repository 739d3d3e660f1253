//! Many requests on one model: jobs go in through a handle, updates come out through their sinks.

mod handle;
mod job;
mod run;
mod snapshot;

pub use handle::{Service, ServiceHandle, ServiceOptions, SubmitError};
pub use job::{
    Alternative, Generation, Job, JobId, JobOutcome, JobSink, NewToken, Priority, Task, Tenant, TokenChance, Update,
};
pub use snapshot::Snapshot;
