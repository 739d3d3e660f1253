//! Splits a model into shards and runs stages on other machines.
#![forbid(unsafe_code)]

mod audit;
mod codec;
mod coverage;
mod digest;
mod discovery;
mod dock;
mod error;
mod exchange;
pub mod frame;
mod guest;
mod identity;
mod invitation;
mod json_file;
pub mod link;
mod listener;
mod lively;
mod machine;
mod manifest;
mod members;
mod message;
mod os;
mod own_stage;
mod owner;
mod pace;
mod places;
mod plan;
mod plan_help;
mod probe;
mod push;
mod quarantine;
mod quay;
mod remote_stage;
mod shadow;
mod shard;
mod split;
mod squeeze;
mod stage_status;
mod store;
mod sweep;
mod table;
mod tcp;
mod testify;
mod tls;
mod trust;
pub mod verbs;
mod worker;

pub use audit::{
    AuditLog, Auditor, Decision, Entry, Head, LogLimits, Position, Record, Seal, SignedHead, Verb, Verdict, Witness,
    Witnesses,
};
pub use codec::Wire;
pub use digest::Digest;
pub use discovery::{Announcement, look_around};
pub use dock::{Dock, Docked, Harbour};
pub use error::FleetError;
pub use guest::Guest;
pub use identity::Identity;
pub use invitation::Invitation;
pub use json_file::{read_json, write_json};
pub use listener::{Arrival, Listener, join};
pub use machine::{LinkSpeed, MachineSpeed};
pub use manifest::{MANIFEST_FILE, MANIFEST_VERSION, Manifest, Numerics, Shard, TOKEN_IO_FILE, stage_file};
pub use members::{Member, Members, seconds_now};
pub use message::{Hello, Offer, StageLimits};
pub use own_stage::{HERE, OwnStage};
pub use owner::{Hours, OwnerLimits, Reading, Turn};
pub use plan::{
    Candidate, Cost, FleetPlan, MOST_MACHINES, ModelCosts, PlannedStage, Task, plan, plan_with_stages, predict,
};
pub use plan_help::{Help, helps};
pub use probe::Probe;
pub use quarantine::Quarantine;
pub use quay::{Berth, Quay};
pub use remote_stage::{Patience, RemoteStage};
pub use shard::{ShardOptions, open_shard};
pub use split::{StageSplit, holds_ends, possible_starts, tells_stage};
pub use stage_status::StageStatus;
pub use store::Store;
pub use tcp::TcpLink;
pub use worker::{LoadStage, Order, RowShape, WorkerStage, greet, greet_measured};
