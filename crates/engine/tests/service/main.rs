//! The service on real models: the tokens of a job never depend on what else is going on.

mod adapters;
mod harness;
mod identity;
mod jobs;
mod known;
mod limits;
mod memory;
mod panics;
mod places;
mod soak;
mod speculation;
mod spill;
mod stages;
