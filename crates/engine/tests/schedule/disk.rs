//! A disk in memory that fails and is slow as it is told, and a tier that spills to it.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cascadia_engine::service::spill::{Disk, Seconds, Secret, Spill, SpillSetup, SpillWriter};
use cascadia_model::PageBytes;

/// What can be done with a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Write,
    Read,
    Remove,
}

/// Files, time, and what goes wrong.
#[derive(Default)]
pub(crate) struct TestDisk {
    state: Mutex<DiskState>,
}

#[derive(Default)]
pub(crate) struct DiskState {
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    /// What fails.
    pub(crate) failing: Vec<Operation>,
    pub(crate) now: f64,
    /// How long a read takes.
    pub(crate) read_seconds: f64,
    /// How often anything was tried.
    pub(crate) calls: u64,
    /// The most that all files ever took.
    pub(crate) most_bytes: u64,
}

impl TestDisk {
    pub(crate) fn state(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A tier that may take so many bytes here, and as many that wait.
    pub(crate) fn tier(
        self: &Arc<Self>,
        pages: Arc<dyn PageBytes>,
        (bytes, queue_bytes): (u64, u64),
    ) -> (Spill, SpillWriter) {
        let (secret, clock) = (Secret::random().expect("random numbers"), Arc::clone(self));
        let seconds: Seconds = Arc::new(move || clock.state().now);
        let disk = Arc::clone(self) as Arc<dyn Disk>;
        Spill::new(SpillSetup { pages, disk, secret, context: "a test", bytes, queue_bytes, seconds })
            .expect("random numbers")
    }
}

impl DiskState {
    /// What all files take, in whole blocks of a disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.values().map(|file| (file.len() as u64).div_ceil(4096) * 4096).sum()
    }

    fn begin(&mut self, operation: Operation) -> io::Result<()> {
        self.calls += 1;
        match self.failing.contains(&operation) {
            true => Err(ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }
}

impl Disk for TestDisk {
    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let begun = state.begin(Operation::Write);
        // A disk that is full has taken a part of it.
        let taken = if begun.is_ok() { bytes } else { &bytes[..bytes.len() / 2] };
        state.files.insert(name.to_owned(), taken.to_vec());
        state.most_bytes = state.most_bytes.max(state.bytes());
        begun
    }

    fn read(&self, name: &str, bytes: usize) -> io::Result<Vec<u8>> {
        let mut state = self.state();
        state.now += state.read_seconds;
        state.begin(Operation::Read)?;
        let file = state.files.get(name).ok_or(ErrorKind::NotFound)?;
        Ok(file.iter().copied().take(bytes + 1).collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.begin(Operation::Remove)?;
        state.files.remove(name).map(drop).ok_or(ErrorKind::NotFound.into())
    }
}
