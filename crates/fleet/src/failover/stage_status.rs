//! What is known of a stage on another machine: for people who look, and for planning again.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Sandbox;

/// Who runs a stage, and what it has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StageStatus {
    /// The first layer and the one after the last.
    pub layers: [u32; 2],
    /// The machine that computes; none if it was lost and nobody has taken over.
    pub node: Option<String>,
    /// Other machines with the same shard that are not held back.
    pub spares: Vec<String>,
    /// The one of them that computes every step as well. It is called a shadow where this is written.
    #[serde(rename = "shadow")]
    pub standby: Option<String>,
    /// Whether that holds the caches of everything that runs, so that nothing is computed again if the machine is lost.
    pub standby_is_warm: bool,
    /// The sandboxes of the machine and the spares, as they say.
    pub sandboxes: BTreeMap<String, Sandbox>,
    /// Machines that may be wrong: they gave different rows for one step.
    pub doubted: Vec<String>,
    /// Machines that are wrong, since this stage began.
    pub wrong: Vec<String>,
    /// Machines that take far longer for a step than they used to.
    pub slow: Vec<String>,
    /// Steps that were answered.
    pub steps: u64,
    /// Rows of those steps.
    pub rows: u64,
    /// Microseconds from sending a step to having its rows, in all.
    pub microseconds: u64,
    /// Of those, how many the machine says it computed; the rest is the link there and back.
    pub computing_microseconds: u64,
    /// Bytes that went there, without what encryption adds.
    pub sent_bytes: u64,
    /// Replies that came too late to count.
    pub late: u64,
    /// Machines that were lost.
    pub lost: u64,
    /// Machines that were slow, and were replaced by their standby.
    pub bypassed: u64,
    /// Steps that a standby computed as well.
    pub followed: u64,
    /// Those of them for which it held everything, and gave the same rows.
    pub compared: u64,
    /// Pages of the KV cache that were copied to standbys which came later than a sequence, at least in part.
    pub copied_pages: u64,
    /// Their bytes.
    pub copied_bytes: u64,
    /// How often copied pages were damaged or wrong, and not used.
    pub bad_pages: u64,
    /// Whether somebody computes what the machine computes as well: its standby, or the coordinator now and then.
    pub is_checked: bool,
    /// Rows that the coordinator computed again, and were the same.
    pub rechecked: u64,
    /// Steps in whose middle the machine was lost, and that its standby answered.
    pub saved: u64,
}

impl StageStatus {
    /// Whether nobody computes it or waits for it but machines that are held back.
    pub fn lacks_machine(&self, held_back: &BTreeMap<String, Duration>) -> bool {
        self.spares.is_empty() && self.node.as_ref().is_none_or(|node| held_back.contains_key(node))
    }
}
