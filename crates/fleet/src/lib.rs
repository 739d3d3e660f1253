//! Splits a model into shards and runs stages on other machines.
#![forbid(unsafe_code)]

mod audit;
pub mod clock;
mod error;
mod event;
mod failover;
#[doc(hidden)]
pub mod fuzzing;
mod home;
mod json_file;
mod membership;
mod os;
mod planning;
mod shards;
mod wire;
mod workers;

pub use audit::{
    AuditLog, Auditor, Decision, Entry, Head, LogLimits, Position, Record, Seal, SeenRequests, ServedModel, SignedHead,
    Verb, Verdict, Witness, Witnesses,
};
pub use clock::{Clock, seconds_now};
pub use error::FleetError;
pub use event::{FleetEvent, Notify};
pub use failover::{OpenRecheck, RemoteStage, StageStatus, Timeouts};
pub use home::{
    Arrivals, CoordinatorSettings, FleetHome, FleetStatus, KnownMachine, KnownMachines, POLL, PushReport, PushRequest,
    WorkerSettings, candidates, default_address, gather, reachable, remember,
};
pub use json_file::{read_json, write_json};
pub use membership::{
    Announcement, Arrival, DatedKey, FleetKey, FleetKeys, FoundCoordinator, HeldKeys, Identity, Invitation,
    JoinedFleet, KEY_GRACE, KeyPair, KeyStatement, KnownKeys, Listener, Listening, MOST_WRONG, Member, Members,
    PairRefusal, PairedFleet, PairedMachine, Pairing, PairingCode, Pairings, PendingIdentity, PendingMember,
    Quarantine, RefusedMachine, Rotation, ShownPairing, find_coordinators, join, look_around, pair,
};
pub use os::{Probe, Sandbox, SandboxPlaces, host_name, lower_priority};
pub use planning::{
    Candidate, Cost, FleetPlan, MOST_MACHINES, ModelCosts, PlannedStage, ReplanTimer, StageSplit, Suggestion, Task,
    holds_ends, layer_names, plan, plan_with_stages, possible_starts, predict, suggestions, tells_stage,
};
pub use shards::{
    Digest, HERE, KnownTargets, MANIFEST_FILE, MANIFEST_VERSION, Manifest, Numerics, OwnStage, PushJob, Shard,
    ShardOptions, SignedManifest, SignedShard, Store, TOKEN_IO_FILE, open_shard, receive_workers, recheck_exported,
    remote_targets, stage_file,
};
pub use wire::{Hello, Offer, RowFormat, StageLimits, TcpLink, frame, link, verbs};
pub use workers::{
    Admission, Assignment, Availability, Hours, LinkSpeed, LoadStage, MachineSpeed, ModelWorkers, OwnerLimits,
    PendingWorker, Reading, Reconnect, RowShape, StageWorkers, WorkerLink, WorkerOptions, WorkerProcess,
    WorkerRegistry, WorkerStage, greet, greet_measured, lent_threads, read_machine, watch_owner,
};
