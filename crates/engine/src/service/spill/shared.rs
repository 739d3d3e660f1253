//! What the thread that owns the model and the one that writes both see.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::cipher::Cipher;
use super::cost::ReadCosts;
use super::disk::Disk;
use super::gate::Gate;
use super::index::Index;
use super::record::RecordId;
use super::{Seconds, SpillStatus};

/// Both threads hold the lock for moments, never while they wait for the disk.
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) cipher: Cipher,
    pub(super) seconds: Seconds,
    /// The most bytes on disk.
    pub(super) most_bytes: u64,
    /// The most bytes that wait to be written.
    pub(super) queue_bytes: u64,
}

/// What changes.
#[derive(Default)]
pub(super) struct State {
    pub(super) index: Index,
    /// Records that wait to be written, in this order.
    pub(super) queue: VecDeque<RecordId>,
    pub(super) writes: Gate,
    pub(super) reads: Gate,
    pub(super) costs: ReadCosts,
    pub(super) counted: SpillStatus,
    /// The service ends.
    pub(super) ending: bool,
    /// Nobody writes any more.
    pub(super) ended: bool,
}

/// What is to be done with the disk.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Task {
    Write(RecordId),
    Remove(RecordId),
}

impl Shared {
    pub(super) fn new((disk, cipher): (Arc<dyn Disk>, Cipher), bytes: (u64, u64), seconds: Seconds) -> Shared {
        let (most_bytes, queue_bytes) = bytes;
        let (state, changed) = (Mutex::default(), Condvar::new());
        Shared { state, changed, disk, cipher, seconds, most_bytes, queue_bytes }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> f64 {
        (self.seconds)()
    }

    /// Wakes whoever waits for a change.
    pub(super) fn notify(&self) {
        self.changed.notify_all();
    }

    /// Waits for a task; nothing once the service ends and none is left.
    pub(super) fn wait_for_task(&self) -> Option<Task> {
        let mut state = self.state();
        loop {
            if let Some(task) = state.next_task(self.now(), self.most_bytes) {
                return Some(task);
            }
            if state.ending {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until a record of so many bytes may wait for the disk, or for so long.
    pub(super) fn wait_for_room(&self, bytes: u64, longest: Duration) {
        let is_full = |state: &mut State| !self.fits(state, bytes) && !state.ended && state.writes.problem().is_none();
        drop(self.changed.wait_timeout_while(self.state(), longest, is_full));
    }

    /// Waits until nobody writes any more, or for so long; `false` where somebody still does.
    pub(super) fn wait_for_end(&self, longest: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.state(), longest, |state| !state.ended);
        waited.unwrap_or_else(PoisonError::into_inner).0.ended
    }

    /// Whether so many bytes more may wait to be written. A record that is larger than the queue waits alone.
    pub(super) fn fits(&self, state: &State, bytes: u64) -> bool {
        let waiting = state.index.waiting_bytes();
        waiting == 0 || waiting.saturating_add(bytes) <= self.queue_bytes
    }

    /// The disk did not write or remove a file: nothing is written for a while, and what waits is given up.
    pub(super) fn writing_failed(&self, action: &str, error: &io::Error) {
        let mut state = self.state();
        let State { index, queue, counted, .. } = &mut *state;
        counted.dropped += index.discard_waiting();
        queue.clear();
        let problem = format!("cannot {action} a file: {error}");
        if state.writes.close(problem.clone(), self.now()) {
            tracing::warn!(problem, "the KV cache spills nothing for now; it is tried again every few seconds");
        }
    }

    /// The disk did not read a record: nothing is read for a while.
    pub(super) fn reading_failed(&self, error: &io::Error) {
        let mut state = self.state();
        let problem = format!("cannot read a file: {error}");
        if state.reads.close(problem.clone(), self.now()) {
            tracing::warn!(problem, "the KV cache restores nothing for now; it is tried again every few seconds");
        }
    }
}

impl State {
    /// What is to be done first: files of no use take room, and an earlier process may have had more of it.
    pub(super) fn next_task(&mut self, now: f64, most_bytes: u64) -> Option<Task> {
        if !self.writes.is_open(now) {
            return None;
        }
        let removed = match self.index.disk_bytes() > most_bytes {
            true => self.index.oldest(most_bytes),
            false => self.index.unusable(),
        };
        removed.map(Task::Remove).or_else(|| self.queue.pop_front().map(Task::Write))
    }

    /// The numbers now.
    pub(super) fn status(&self, most_bytes: u64) -> SpillStatus {
        SpillStatus {
            problem: self.writes.problem().or(self.reads.problem()).map(str::to_owned),
            records: self.index.records(),
            bytes: self.index.disk_bytes(),
            most_bytes,
            waiting_bytes: self.index.waiting_bytes(),
            ..self.counted.clone()
        }
    }
}
