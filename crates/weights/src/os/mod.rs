//! What differs between operating systems when files are mapped, written and shared.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use unix::{FaultGuard, advise, link_file, new_file_permissions, sync_folder};
#[cfg(windows)]
pub(crate) use windows::{FaultGuard, advise, link_file, new_file_permissions, sync_folder};

/// How mapped bytes are going to be read. Only a hint: ignoring it never changes a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryAdvice {
    /// Everything is needed soon: start reading it now.
    WillNeed,
    /// Read once from front to back.
    Sequential,
    /// Read here and there: do not read ahead.
    Random,
}
