//! A stage on another machine, and how it outlives that machine: lockstep standbys, row checks, slow workers.

pub(crate) mod coverage;
pub(crate) mod pace;
pub(crate) mod remote_stage;
pub(crate) mod stage_status;
pub(crate) mod standby;
pub(crate) mod trust;

pub use remote_stage::{RemoteStage, Timeouts};
pub use stage_status::StageStatus;
