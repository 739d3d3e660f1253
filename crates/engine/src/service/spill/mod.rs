//! A disk tier of the KV cache: pages that memory gives up go to encrypted files, and come back when a prompt continues their
//! text.
//!
//! The thread that owns the model copies pages and reads records back; a thread of its own writes and removes them. Whatever
//! goes wrong with a record or the disk is a miss: the page is computed again.

mod cipher;
mod cost;
mod disk;
mod gate;
mod index;
mod record;
mod shared;
mod status;
mod tier;
mod writer;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

pub use cipher::Secret;
pub use disk::{Disk, Folder};
pub use status::SpillStatus;
pub use tier::{Spill, SpillHandle, SpillSetup};
pub use writer::{SpillWriter, WriterThread};

/// The most bytes of pages that wait to be written; further ones are given up as if there was no disk.
pub const QUEUE_BYTES: u64 = 64 << 20;

/// Where pages go that memory gives up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpillOptions {
    /// A folder that no other server spills to.
    pub folder: PathBuf,
    /// The most bytes on disk; what was used longest ago goes first.
    pub bytes: u64,
    /// Whether records survive a restart, and cached prefixes are written when the service ends.
    pub keep_prefixes: bool,
    /// Tells models apart whose pages differ.
    pub model: String,
}

/// Seconds since some moment.
pub type Seconds = Arc<dyn Fn() -> f64 + Send + Sync>;
