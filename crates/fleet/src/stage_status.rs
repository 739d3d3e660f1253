//! What is known of a stage on another machine: for people who look, never for decisions.

use serde::{Deserialize, Serialize};

/// Who runs a stage, and what it has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageStatus {
    /// The first layer and the one after the last.
    pub layers: [u32; 2],
    /// The machine that computes; none if it was lost and nobody has taken over.
    pub node: Option<String>,
    /// Machines that wait with the same shard and are not held back.
    pub spares: Vec<String>,
    /// Steps that were answered.
    pub steps: u64,
    /// Rows of those steps.
    pub rows: u64,
    /// Microseconds from sending a step to having its rows, in all.
    pub microseconds: u64,
    /// Of those, how many the machine says it computed; the rest is the way there and back.
    pub computing_microseconds: u64,
    /// Bytes that went there, without what encryption adds.
    pub sent_bytes: u64,
    /// Replies that came too late to count.
    pub late: u64,
    /// Machines that were lost.
    pub lost: u64,
}
