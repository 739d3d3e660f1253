//! A file mapped read-only, together with the means to notice that it changed underneath.
#![expect(unsafe_code, reason = "mapping a file is unsafe because other processes may change it")]

use std::fs::{File, Metadata};
use std::io;
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use memmap2::Mmap;

use crate::os::{self, FaultGuard, MemoryAdvice};

/// The bytes of a file, read from the page cache when they are touched.
#[derive(Debug)]
pub(crate) struct MappedFile {
    // Fields drop in order: the guard must be gone before its mapping is.
    guard: FaultGuard,
    map: Mmap,
    file: File,
    stamp: Stamp,
    changed: AtomicBool,
}

impl MappedFile {
    /// Maps the whole of `file`, which must not be empty.
    pub(crate) fn new(file: File) -> io::Result<MappedFile> {
        let stamp = Stamp::of(&file.metadata()?);
        // SAFETY: nobody in this process writes to the mapping. Another process may change the file; then its bytes
        // are different bytes, every one of which is valid for `u8` and none of which is trusted without a check,
        // and pages that vanish are replaced by the guard.
        let map = unsafe { Mmap::map(&file)? };
        os::prefer_huge_pages(&map);
        let guard = FaultGuard::new(&map)?;
        Ok(MappedFile { guard, map, file, stamp, changed: AtomicBool::new(false) })
    }

    /// Whether the file still is what was mapped; once false, false for ever.
    ///
    /// A lost page is noticed by the guard. A cut inside the last page or an overwrite raises no fault, so the
    /// length and the time of the last change are compared too.
    pub(crate) fn is_intact(&self) -> bool {
        let same = || self.file.metadata().is_ok_and(|metadata| Stamp::of(&metadata) == self.stamp);
        let intact = !self.changed.load(Ordering::Acquire) && !self.guard.is_damaged() && same();
        if !intact {
            self.changed.store(true, Ordering::Release);
        }
        intact
    }

    /// Brings all bytes into memory; an error where the system has no call for it.
    pub(crate) fn populate(&self) -> io::Result<()> {
        os::populate(&self.map)
    }

    /// Keeps all bytes in memory.
    pub(crate) fn lock(&self) -> io::Result<()> {
        os::lock(&self.map)
    }

    /// Tells the system how a range of the bytes will be read.
    pub(crate) fn advise(&self, range: Range<usize>, advice: MemoryAdvice) -> io::Result<()> {
        os::advise(&self.map, &self.file, range, advice)
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

/// What a file looked like when it was mapped.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    length: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Stamp {
        Stamp { length: metadata.len(), modified: metadata.modified().ok() }
    }
}
