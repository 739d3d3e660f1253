//! Adapters of one model by name, and those of them that are in memory.

mod selection;
mod store;

pub use selection::AdapterHandle;
pub use store::{AdapterLimits, AdapterStatus, AdapterStore};
