//! Windows: a mapped file cannot be truncated there, so the guard has nothing to do.
#![expect(unsafe_code, reason = "prefetching mapped memory has no safe interface")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::windows::fs::FileExt;
use std::path::Path;

use memmap2::Mmap;
use windows_sys::Win32::System::Memory::{PrefetchVirtualMemory, WIN32_MEMORY_RANGE_ENTRY};
use windows_sys::Win32::System::Threading::GetCurrentProcess;

use super::MemoryAdvice;

/// The twin of the Unix guard: the system itself refuses to truncate a file that has a mapping.
#[derive(Debug)]
pub(crate) struct FaultGuard;

impl FaultGuard {
    /// Starts guarding `map`; nothing to do.
    pub(crate) fn new(_map: &Mmap) -> io::Result<FaultGuard> {
        Ok(FaultGuard)
    }

    /// Always false: no page of a mapping can be lost.
    pub(crate) fn is_damaged(&self) -> bool {
        false
    }
}

/// Tells the system how a range of `map` will be read; Windows only knows about reading ahead.
pub(crate) fn advise(map: &Mmap, _file: &File, range: Range<usize>, advice: MemoryAdvice) -> io::Result<()> {
    if advice != MemoryAdvice::WillNeed {
        return Ok(());
    }
    let part = &map[range];
    let range = WIN32_MEMORY_RANGE_ENTRY { VirtualAddress: part.as_ptr().cast_mut().cast(), NumberOfBytes: part.len() };
    // SAFETY: `range` describes a mapping that `map` keeps alive, and the call only reads it ahead.
    let done = unsafe { PrefetchVirtualMemory(GetCurrentProcess(), 1, &range, 0) };
    if done == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Opens a file; Windows takes pages out of its cache when it sees fit.
pub(crate) fn open_uncached(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Reads at `offset`.
pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    file.seek_read(buffer, offset)
}

/// Windows has no such call.
pub(crate) fn populate(_map: &Mmap) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Locking is not built for Windows.
pub(crate) fn lock(_map: &Mmap) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// What to do where locking was refused.
pub(crate) fn lock_advice() -> String {
    "leave it out on this system".to_owned()
}

/// Windows has no huge pages for mapped files.
pub(crate) fn prefer_huge_pages(_map: &Mmap) {}

/// A rename is already durable when it returns.
pub(crate) fn sync_folder(_folder: &Path) -> io::Result<()> {
    Ok(())
}
