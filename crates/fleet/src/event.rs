//! What people who run a fleet may want to know while it works.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::{Digest, FleetKey, FleetPlan};

/// Something that happened on a coordinator or a worker. `Display` puts it into a sentence.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum FleetEvent {
    /// The local network cannot be told where the coordinator is.
    NotAnnounced {
        /// What failed.
        problem: String,
    },
    /// A machine waits to be approved.
    Pending {
        /// The name it will have.
        node: String,
        /// What it shows too, unless somebody is between.
        code: String,
    },
    /// This machine waits to be approved.
    AwaitsApproval {
        /// What the coordinator shows too, unless somebody is between.
        code: String,
    },
    /// A machine has a new key.
    Rotated {
        /// Its name.
        node: String,
    },
    /// One of the fleet's own keys was replaced, because it was old enough.
    KeyReplaced {
        /// Which.
        key: FleetKey,
    },
    /// The fleet's own keys should be replaced, and cannot be.
    KeysNotReplaced {
        /// What failed.
        problem: String,
    },
    /// A machine has joined the fleet.
    Joined {
        /// The name it was given.
        node: String,
    },
    /// A machine has joined with the pairing code.
    Paired {
        /// The name it was given.
        node: String,
    },
    /// A connection was refused before its machine was known.
    TurnedAway {
        /// Where it came from.
        address: SocketAddr,
        /// Why it was refused.
        problem: String,
    },
    /// A worker has loaded its shard.
    Ready {
        /// Its name.
        node: String,
        /// The stage it can run.
        stage: usize,
    },
    /// A worker cannot be used.
    Refused {
        /// Its name.
        node: String,
        /// Why not.
        problem: String,
    },
    /// A worker could not be asked for its speed.
    NotMeasured {
        /// Its name.
        node: String,
        /// Why not.
        problem: String,
    },
    /// A worker does not countersign the audit log.
    NotCountersigned {
        /// Its name.
        node: String,
        /// What it says.
        problem: String,
    },
    /// A worker was lost too often and is not used for a while.
    Quarantined {
        /// Its name.
        node: String,
        /// For how long, and why.
        note: String,
    },
    /// The audit log cannot be written.
    NotAudited {
        /// What failed.
        problem: String,
    },
    /// The coordinator waits for workers to be measured.
    Measuring {
        /// Their names.
        nodes: Vec<String>,
    },
    /// Workers did not connect in time.
    Absent {
        /// Their names.
        nodes: Vec<String>,
    },
    /// A model was planned over the machines that are there.
    Planned(FleetPlan),
    /// A model is about to be split into shards.
    Exporting {
        /// The model.
        model: String,
        /// How many stages it gets.
        stages: usize,
        /// The formats of its numbers.
        precision: String,
    },
    /// A shard is being written.
    WritingShard {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// Tensors written so far.
        done: u64,
        /// Tensors of the shard.
        total: u64,
    },
    /// Shards are being sent.
    SendingShards {
        /// Bytes that have arrived.
        done: u64,
        /// Bytes of all of them.
        total: u64,
    },
    /// How a push goes, as the machines say it.
    Push {
        /// A sentence.
        note: String,
    },
    /// A push to a running server failed.
    PushFailed {
        /// Why.
        problem: String,
    },
    /// Stages have no worker yet.
    WaitingForWorkers {
        /// Which.
        stages: Vec<usize>,
        /// What the connected machines hold instead.
        holdings: String,
    },
    /// Stages have lost their last worker, and the model is planned again.
    Replanning {
        /// Which.
        stages: Vec<usize>,
    },
    /// Machines have come that could make the model faster, which is planned again.
    Extending {
        /// Which.
        nodes: Vec<String>,
    },
    /// They would not.
    NotFaster,
    /// While it was planned again, a worker came back for every stage.
    Recovered,
    /// It could not be planned again.
    ReplanFailed {
        /// Why.
        problem: String,
    },
    /// This worker computes for its coordinator from now on.
    Computing {
        /// Its name.
        node: String,
    },
    /// This worker has released a shard.
    ShardReleased {
        /// Which.
        shard: Digest,
    },
    /// A shard that this worker had stored is damaged, and was removed.
    ShardDamaged {
        /// Which.
        shard: Digest,
    },
    /// What this worker has to say of its connections and its shards.
    Worker {
        /// A sentence.
        note: String,
    },
}

/// Receives events, on whichever thread they happen: it must not block.
pub type Notify = Arc<dyn Fn(&FleetEvent) + Send + Sync>;

impl fmt::Display for FleetEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FleetEvent::NotAnnounced { problem } => f.write_str(problem),
            FleetEvent::Pending { node, code } => write!(
                f,
                "{node} wants to join with the code {code}. If that machine shows the same code, run:  \
                cascadia fleet approve {node}    (otherwise: cascadia fleet reject {node})"
            ),
            FleetEvent::AwaitsApproval { code } => {
                write!(f, "This machine waits to be approved. Compare its code with the coordinator's:  {code}")
            }
            FleetEvent::Rotated { node } => write!(f, "{node} has a new key."),
            FleetEvent::KeyReplaced { key } => write!(f, "The fleet has a new {}.", key.name()),
            FleetEvent::KeysNotReplaced { problem } => write!(f, "The fleet's keys cannot be replaced: {problem}"),
            FleetEvent::Joined { node } | FleetEvent::Paired { node } => write!(f, "{node} has joined the fleet."),
            FleetEvent::TurnedAway { address, problem } => write!(f, "{address} was turned away: {problem}"),
            FleetEvent::Ready { node, stage } => write!(f, "{node} is ready for stage {stage}."),
            FleetEvent::Refused { node, problem } => write!(f, "{node} cannot take part: {problem}"),
            FleetEvent::NotMeasured { node, problem } => write!(f, "{node} could not be measured: {problem}"),
            FleetEvent::NotCountersigned { node, problem } => {
                write!(f, "{node} does not countersign the audit log: {problem}")
            }
            FleetEvent::Quarantined { node, note } => write!(f, "{node} was {note}"),
            FleetEvent::NotAudited { problem } => write!(f, "The audit log cannot be written: {problem}"),
            FleetEvent::Measuring { nodes } => write!(f, "Waiting for {} to be measured.", nodes.join(", ")),
            FleetEvent::Absent { nodes } => write!(f, "{} did not come; planning without.", nodes.join(", ")),
            FleetEvent::Planned(plan) => write!(f, "Planned {} stages.", plan.stages.len()),
            FleetEvent::Exporting { model, stages: 1, precision } => {
                write!(f, "Cutting {model} into one stage ({precision}).")
            }
            FleetEvent::Exporting { model, stages, precision } => {
                write!(f, "Cutting {model} into {stages} stages ({precision}).")
            }
            FleetEvent::WritingShard { file, tensor, done, total } => write!(f, "{file}: {tensor} ({done}/{total})"),
            FleetEvent::SendingShards { done, total } => write!(f, "{done} of {total} bytes were sent."),
            FleetEvent::Push { note } | FleetEvent::Worker { note } => f.write_str(note),
            FleetEvent::PushFailed { problem } => write!(f, "A push failed, and nothing has changed: {problem}"),
            FleetEvent::WaitingForWorkers { stages, holdings } => {
                write!(f, "Waiting for a machine for {}; {holdings}.", named(stages))
            }
            FleetEvent::Replanning { stages } => {
                write!(f, "No machine is left for {}; planning again.", named(stages))
            }
            FleetEvent::Extending { nodes } => write!(f, "{} can take part; planning again.", nodes.join(", ")),
            FleetEvent::NotFaster => f.write_str("It would not be noticeably faster; nothing changes."),
            FleetEvent::Recovered => f.write_str("A machine came back meanwhile; nothing changes."),
            FleetEvent::ReplanFailed { problem } => {
                write!(f, "It could not be planned again, and will be tried later: {problem}")
            }
            FleetEvent::Computing { node } => write!(f, "{node} computes for the coordinator."),
            FleetEvent::ShardDamaged { shard } => {
                write!(f, "shard {} is damaged and was removed; push it again", shard.short())
            }
            FleetEvent::ShardReleased { shard } => write!(f, "shard {} is no longer needed", shard.short()),
        }
    }
}

fn named(stages: &[usize]) -> String {
    stages.iter().map(|stage| format!("stage {stage}")).collect::<Vec<_>>().join(", ")
}
