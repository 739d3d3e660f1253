//! The thread that writes and removes records, and keeps them within their limit.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::record::RecordId;
use super::shared::{Shared, Task};

/// The longest that the end of a service waits for the disk.
pub(super) const END_TIME: Duration = Duration::from_secs(10);

/// Writes what waits, and removes what is of no use.
pub struct SpillWriter {
    pub(super) shared: Arc<Shared>,
    /// Whether records outlive the process.
    pub(super) keep: bool,
}

/// The thread of a writer. Dropping it ends the thread, after a bounded time.
pub struct WriterThread {
    shared: Arc<Shared>,
    keep: bool,
    thread: Option<JoinHandle<()>>,
}

/// Says that nobody writes any more, however that came about.
struct EndOfWriting<'a>(&'a Shared);

impl SpillWriter {
    /// Starts a thread that works until its handle is dropped.
    pub fn start(self) -> io::Result<WriterThread> {
        let (shared, keep) = (Arc::clone(&self.shared), self.keep);
        let thread = thread::Builder::new().name("cascadia-spill".to_owned()).spawn(move || self.run())?;
        Ok(WriterThread { shared, keep, thread: Some(thread) })
    }

    fn run(self) {
        let _end = EndOfWriting(&self.shared);
        while let Some(task) = self.shared.wait_for_task() {
            self.perform(task);
        }
    }

    /// Does what there is to do now, for those who have no thread for it.
    pub fn work(&self) {
        loop {
            let task = self.shared.state().next_task(self.shared.now(), self.shared.most_bytes);
            let Some(task) = task else { return };
            self.perform(task);
        }
    }

    fn perform(&self, task: Task) {
        match task {
            Task::Write(id) => self.write(&id),
            Task::Remove(id) => _ = self.remove(&id),
        }
        self.shared.notify();
    }

    fn write(&self, id: &RecordId) {
        // It may have been given up meanwhile.
        let Some(plain) = self.shared.state().index.waiting(id) else { return };
        let Some(sealed) = self.shared.cipher.seal(id, &plain) else { return self.give_up(id) };
        let bytes = sealed.len() as u64;
        if !self.make_room(bytes) {
            return self.give_up(id);
        }
        self.shared.state().index.begin_write(id, bytes);
        match self.shared.disk.write(&id.file_name(), &sealed) {
            Ok(()) => {
                let mut state = self.shared.state();
                state.index.end_write(id);
                state.counted.written += 1;
                state.counted.written_bytes += bytes;
                if state.writes.open() {
                    tracing::info!("the KV cache spills again");
                }
            }
            Err(error) => {
                // What there is of it takes room until it is removed.
                self.shared.state().index.spoil(id);
                self.shared.writing_failed("write", &error);
                if removed(self.shared.disk.remove(&id.file_name())).is_ok() {
                    self.shared.state().index.remove(id);
                }
                self.shared.state().counted.dropped += 1;
            }
        }
    }

    /// Removes what was used longest ago until so many bytes fit; `false` where they do not.
    fn make_room(&self, bytes: u64) -> bool {
        loop {
            let oldest = {
                let state = self.shared.state();
                if state.index.has_room(bytes, self.shared.most_bytes) {
                    return true;
                }
                state.index.oldest(self.shared.most_bytes)
            };
            let Some(oldest) = oldest else { return false };
            if !self.remove(&oldest) {
                return false;
            }
        }
    }

    /// Removes a file; `false` where the disk refuses.
    fn remove(&self, id: &RecordId) -> bool {
        // First, so that nobody begins to read it.
        self.shared.state().index.spoil(id);
        match removed(self.shared.disk.remove(&id.file_name())) {
            Ok(()) => {
                self.shared.state().index.remove(id);
                true
            }
            Err(error) => {
                self.shared.writing_failed("remove", &error);
                false
            }
        }
    }

    fn give_up(&self, id: &RecordId) {
        let mut state = self.shared.state();
        if state.index.waiting(id).is_some() {
            state.index.remove(id);
            state.counted.dropped += 1;
        }
    }
}

impl WriterThread {
    /// Whether records outlive the process.
    pub fn keeps_records(&self) -> bool {
        self.keep
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.ending = true;
        if !self.keep {
            state.queue.clear();
            state.index.spoil_all();
        }
        drop(state);
        self.shared.notify();
        // A disk that hangs is not waited for.
        if let Some(thread) = self.thread.take().filter(|_| self.shared.wait_for_end(END_TIME)) {
            // A panic in it was reported.
            let _ = thread.join();
        }
    }
}

impl Drop for EndOfWriting<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.ended = true;
        if thread::panicking() {
            state.index.discard_waiting();
            // For good: nobody opens it again.
            state.writes.close("the thread that writes broke off; this is a bug worth reporting".to_owned(), f64::MAX);
        }
        drop(state);
        self.0.notify();
    }
}

/// A file that is gone is removed.
fn removed(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
