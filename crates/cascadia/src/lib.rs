//! The public crate: every primitive of `cascadia` under one name, with the commands of its program on top.
#![forbid(unsafe_code)]

pub use cascadia_engine as engine;
pub use cascadia_eval as eval;
pub use cascadia_fleet as fleet;
pub use cascadia_kernels as kernels;
pub use cascadia_model as model;
pub use cascadia_server as server;
pub use cascadia_text as text;
pub use cascadia_weights as weights;

mod commands;
mod failure;
pub mod flags;
mod fleet_home;
mod handover;
mod hub;
mod known_machines;
mod machine;
mod model_costs;
mod os;
mod output;
mod progress;
mod scored_text;
mod source;
mod threads;

pub use commands::execute;
pub use failure::exit_code;
