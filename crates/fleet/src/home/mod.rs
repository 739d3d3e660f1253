//! What a machine keeps of its fleet on disk, as a coordinator and as a worker.

mod addresses;
mod arrivals;
mod folder;
mod known_machines;
mod push_request;
mod settings;

pub use addresses::{default_address, reachable};
pub use arrivals::Arrivals;
pub use folder::FleetHome;
pub use known_machines::{KnownMachine, KnownMachines, candidates, gather, remember};
pub use push_request::{POLL, PushReport, PushRequest};
pub use settings::{CoordinatorSettings, FleetStatus, WorkerSettings};
