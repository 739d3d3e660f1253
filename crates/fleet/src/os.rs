//! What the operating system knows of disks.

use std::path::Path;

/// Bytes that are free where `folder` is; nothing where the system does not say.
#[cfg(unix)]
pub(crate) fn free_bytes(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    disk.f_bavail.checked_mul(disk.f_frsize)
}

/// Bytes that are free where `folder` is; nothing where the system does not say.
#[cfg(not(unix))]
pub(crate) fn free_bytes(_folder: &Path) -> Option<u64> {
    None
}
