//! The audit log of a fleet: what was decided, in an order that nobody can change unseen.

mod auditor;
mod countersign;
mod head;
mod log;
mod record;
mod refusals;
mod seal;
mod seen;
#[cfg(test)]
mod tests;
mod verify;

pub use auditor::Auditor;
pub(crate) use countersign::Countersigner;
pub(crate) use head::{Countersignature, parse_testimony, testimony_bytes};
pub use head::{Head, SignedHead, Witness, Witnesses};
pub use log::{AuditLog, LogLimits};
pub use record::{Decision, Entry, Position, Record, Verb};
pub(crate) use refusals::Refusals;
pub(crate) use seal::SEAL_BYTES;
pub use seal::Seal;
pub(crate) use seen::KnownRequests;
pub use seen::{SeenRequests, ServedModel};
pub use verify::Verdict;
