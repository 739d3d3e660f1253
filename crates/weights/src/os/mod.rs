//! What differs between operating systems when files are mapped and written, and what they tell of memory.

mod memory_policy;
mod memory_probe;
mod nameless_file;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

pub use memory_policy::interleave_memory;
pub use memory_probe::{MEMORY_REFUSE, MEMORY_SHED, MemoryProbe};
pub(crate) use nameless_file::{name_file, nameless_file};
#[cfg(unix)]
pub(crate) use unix::{
    FaultGuard, advise, lock, lock_advice, open_uncached, populate, prefer_huge_pages, read_at, sync_folder,
};
#[cfg(windows)]
pub(crate) use windows::{
    FaultGuard, advise, lock, lock_advice, open_uncached, populate, prefer_huge_pages, read_at, sync_folder,
};

/// How mapped bytes are going to be read. Only a hint: ignoring it never changes a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryAdvice {
    /// Everything is needed soon: start reading it now.
    WillNeed,
    /// Read once from front to back.
    Sequential,
    /// Read here and there: do not read ahead.
    Random,
    /// Not needed for now: give its memory back, also what the system keeps of the file.
    Release,
    /// Not needed for now in this process: the system may keep what it has read of the file.
    Unload,
}
