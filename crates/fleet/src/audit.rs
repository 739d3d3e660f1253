//! The audit log of a fleet: what was decided, in an order that nobody can change unseen.

mod auditor;
mod head;
mod log;
mod record;
mod refusals;
mod seal;
#[cfg(test)]
mod tests;
mod verify;

pub use auditor::Auditor;
pub use head::{Head, SignedHead, Witness, Witnesses};
pub(crate) use head::{Testimony, testimony_bytes};
pub use log::{AuditLog, LogLimits};
pub use record::{Decision, Entry, Position, Record, Verb};
use refusals::Refusals;
pub use seal::Seal;
pub use verify::Verdict;
