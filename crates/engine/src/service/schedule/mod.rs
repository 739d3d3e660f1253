//! Decides what is computed next: a state machine without clock, threads or model.
//!
//! `plan` may be called again before `commit`: a sequence whose plan is not committed is left alone.

mod limits;
mod memory;
mod pages;
mod plan;
mod prefix;
mod recent_use;
mod resident;
mod restraint;
mod scheduler;
mod sequence;
mod tenants;
mod tier;
mod use_clock;

pub use limits::{PromptRows, ScheduleCounters, ScheduleLimits, Sharing};
pub use memory::{Evictions, Holding, Memory, Reach};
pub use pages::{Holder, Pages};
pub use plan::{Advance, JobRows, Plan};
pub use prefix::{NodeId, PrefixKey, PrefixTree};
pub use resident::{ResidentAdapters, Weights};
pub use scheduler::Scheduler;
pub use sequence::{Needs, Work};
pub use tenants::{Place, Served, TenantShare, Tenants, Yielding};
pub use tier::{Block, Fetched, PageTier};
pub use use_clock::UseClock;
