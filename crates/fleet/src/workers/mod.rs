//! The machines that compute: the worker itself, and how the coordinator keeps track of connected workers.

pub(crate) mod availability;
mod dialler;
pub(crate) mod heartbeat;
#[cfg(test)]
mod key_tests;
pub(crate) mod machine;
pub(crate) mod model_workers;
mod owner;
pub(crate) mod pending;
pub(crate) mod process;
pub(crate) mod reconnect;
pub(crate) mod registry;
pub(crate) mod stage_workers;
pub(crate) mod worker;
mod worker_keys;
pub(crate) mod worker_link;

pub use availability::{Availability, Hours, OwnerLimits, Reading};
pub use machine::{LinkSpeed, MachineSpeed};
pub use model_workers::ModelWorkers;
pub use owner::{lent_threads, read_machine, watch_owner};
pub use pending::PendingWorker;
pub use process::{WorkerOptions, WorkerProcess};
pub use reconnect::Reconnect;
pub use registry::{Admission, WorkerRegistry};
pub use stage_workers::StageWorkers;
pub use worker::{Assignment, LoadStage, RowShape, WorkerStage, greet, greet_measured};
pub use worker_link::WorkerLink;
