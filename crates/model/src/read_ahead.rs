//! A thread that brings the weights of the next layer into memory while the present one computes.
//!
//! In the first step it reads every layer once, so that a cold file is read in order and not where threads happen to
//! touch it. Later it reads only the layers that do not stay in memory, whose pages are given back after use.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use cascadia_weights::MemoryAdvice;

use crate::residency::{LAYERS_AT_ONCE, Residency, Streamed};

/// Reads layers in the order in which steps use them.
pub(crate) struct ReadAhead {
    shared: Arc<Shared>,
    reader: Option<JoinHandle<()>>,
    /// Steps begun; only the thread that runs them counts.
    steps: AtomicU64,
}

struct Shared {
    residency: Residency,
    progress: Mutex<Progress>,
    changed: Condvar,
}

/// Reads are numbered in the order of use: first every layer, then the streamed ones again and again.
#[derive(Default)]
struct Progress {
    /// Reads that are done.
    read: u64,
    /// Reads whose layer is no longer used.
    used: u64,
    quit: bool,
}

impl ReadAhead {
    /// Starts the thread, which begins with the first layer at once.
    pub(crate) fn new(residency: Residency) -> ReadAhead {
        let shared = Arc::new(Shared { residency, progress: Mutex::new(Progress::default()), changed: Condvar::new() });
        let worker = Arc::clone(&shared);
        // Without a thread the weights are read when they are touched, which is slower but not wrong.
        let reader = thread::Builder::new().name("cascadia-read".into()).spawn(move || worker.read_all()).ok();
        ReadAhead { shared, reader, steps: AtomicU64::new(0) }
    }

    /// A step begins with the first layer, whatever became of the step before.
    pub(crate) fn begin_step(&self) {
        let step = self.steps.fetch_add(1, Ordering::Relaxed);
        if step == 0 || self.streams() {
            let mut progress = self.shared.lock();
            progress.used = progress.used.max(self.shared.first_read(step));
            drop(progress);
            self.shared.changed.notify_all();
        }
    }

    /// Layer `index` is about to compute: waits for its bytes when it is one that does not stay, and returns how many
    /// those are.
    pub(crate) fn enter(&self, index: usize) -> u64 {
        let Some(rank) = self.rank(index) else { return 0 };
        let bytes = self.shared.residency.layers[index].iter().map(|part| part.as_ref().len() as u64).sum();
        if self.reader.is_none() {
            return bytes;
        }
        let number = self.shared.number(self.step(), index, rank);
        let mut progress = self.shared.lock();
        while progress.read <= number {
            progress = self.shared.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
        bytes
    }

    /// Layer `index` has computed: its bytes are given back when it is one that does not stay.
    pub(crate) fn leave(&self, index: usize) {
        let (step, rank) = (self.step(), self.rank(index));
        if step > 0 && rank.is_none() {
            return;
        }
        if rank.is_some() {
            // A hint: where the system does not take it, memory fills up and pages leave in its own order.
            self.shared.residency.layers[index].iter().for_each(|part| drop(part.advise(MemoryAdvice::Release)));
        }
        self.shared.lock().used = self.shared.number(step, index, rank.unwrap_or(0)) + 1;
        self.shared.changed.notify_all();
    }

    /// The step that runs now.
    fn step(&self) -> u64 {
        self.steps.load(Ordering::Relaxed).saturating_sub(1)
    }

    /// Whether all layers and their experts stay in memory.
    pub(crate) fn keeps_all(&self) -> bool {
        let Streamed { layers, experts } = &self.shared.residency.streamed;
        layers.is_empty() && experts.is_empty()
    }

    fn streams(&self) -> bool {
        !self.shared.residency.streamed.layers.is_empty()
    }

    /// Which of the streamed layers `index` is.
    fn rank(&self, index: usize) -> Option<usize> {
        self.shared.residency.streamed.layers.binary_search(&index).ok()
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.shared.lock().quit = true;
        self.shared.changed.notify_all();
        if let Some(reader) = self.reader.take() {
            // It only touches bytes and cannot panic.
            let _ = reader.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the first read of a step.
    fn first_read(&self, step: u64) -> u64 {
        let (all, streamed) = (self.residency.layers.len() as u64, self.residency.streamed.layers.len() as u64);
        if step == 0 { 0 } else { all + (step - 1) * streamed }
    }

    /// The number of the read that serves layer `index`, the streamed layer `rank`, in a step.
    fn number(&self, step: u64, index: usize, rank: usize) -> u64 {
        self.first_read(step) + if step == 0 { index } else { rank } as u64
    }

    /// The layer that read `number` brings; `None` when everything is in memory for good.
    fn layer(&self, number: u64) -> Option<usize> {
        let Residency { layers, streamed: Streamed { layers: streamed, .. } } = &self.residency;
        match number.checked_sub(layers.len() as u64) {
            None => Some(number as usize),
            Some(_) if streamed.is_empty() => None,
            Some(later) => Some(streamed[(later % streamed.len() as u64) as usize]),
        }
    }

    fn read_all(&self) {
        let mut number = 0;
        while let Some(layer) = self.layer(number) {
            let mut progress = self.lock();
            while !progress.quit && number >= progress.used + LAYERS_AT_ONCE {
                progress = self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
            }
            if progress.quit {
                return;
            }
            let overtaken = number < progress.used;
            drop(progress);
            if !overtaken {
                self.residency.layers[layer].iter().for_each(|part| part.fetch());
            }
            number += 1;
            self.lock().read = number;
            self.changed.notify_all();
        }
    }
}
