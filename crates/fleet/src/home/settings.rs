//! What coordinators and workers remember between runs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{Digest, FleetPlan, KnownKeys, StageStatus};

/// What a coordinator remembers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CoordinatorSettings {
    /// Where it listens for workers.
    pub listen: String,
    /// The folder that was pushed last.
    #[serde(default)]
    pub pushed: Option<PathBuf>,
    /// Its stages that the coordinator runs itself.
    #[serde(default)]
    pub own_stages: Vec<u32>,
    /// Whether it is not announced in the local network.
    #[serde(default)]
    pub silent: bool,
}

/// What a worker remembers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerSettings {
    /// Where its coordinator listens.
    pub addresses: Vec<String>,
    /// The keys of its fleet.
    #[serde(flatten)]
    pub keys: KnownKeys,
    /// What this machine is called there.
    pub node: String,
    /// The shards that it was sent and that were of use.
    #[serde(default)]
    pub shards: Vec<Digest>,
}

/// How the machines of a fleet are while it serves.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FleetStatus {
    /// When this was written, in seconds since 1970.
    pub time: u64,
    /// The model that is served, once one is.
    pub model: Option<Digest>,
    /// What people call it.
    #[serde(default)]
    pub name: String,
    /// Machines that are connected, whatever they do.
    #[serde(default)]
    pub connected: Vec<String>,
    /// Its stages in order.
    pub stages: Vec<StageStatus>,
    /// Whether token ids are sent to the machines, because layers make inputs from them.
    #[serde(default)]
    pub sends_tokens: bool,
    /// What was expected of them, where the fleet was planned.
    #[serde(default)]
    pub plan: Option<FleetPlan>,
    /// Machines that were lost too often, and for how many seconds more they are held back.
    #[serde(default)]
    pub quarantined: BTreeMap<String, u64>,
}
