//! A stage on another machine, and how it survives the loss of that machine: lockstep standbys, row checks, slow workers.

pub(crate) mod coverage;
pub(crate) mod failure;
pub(crate) mod pace;
pub(crate) mod page_copies;
pub(crate) mod recheck;
pub(crate) mod remote_stage;
pub(crate) mod stage_status;
pub(crate) mod standby;
pub(crate) mod standby_state;
pub(crate) mod timeouts;
pub(crate) mod trust;
pub(crate) mod unproven;

pub use recheck::OpenRecheck;
pub use remote_stage::RemoteStage;
pub use stage_status::StageStatus;
pub use timeouts::Timeouts;
