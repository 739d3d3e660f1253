//! The ceilings of this machine, measured: memory, arithmetic, threads, disk.

use std::path::Path;

use cascadia_kernels::{Ops, Peak, Pool, barrier_seconds, peak_speed, read_speed};
use cascadia_weights::{ModelFiles, TensorBytes, read_cold};

use crate::EvalError;

/// Bytes that are read to measure memory: far more than any cache holds.
const READ_BYTES: usize = 1 << 30;
/// Times each measurement is made; the best one counts, because a ceiling is what is possible.
const ATTEMPTS: usize = 5;
/// Operations without work that are averaged for the cost of a barrier.
const BARRIERS: u32 = 20_000;
/// Bytes of a file that are read to measure the disk.
const DISK_BYTES: u64 = 2 << 30;

/// What the machine reaches at best.
#[derive(Clone, Debug)]
pub struct Ceilings {
    /// Name of the instruction set the kernels use.
    pub instructions: &'static str,
    /// The same for 1, 2, 4, … and all threads of the pool; never empty.
    pub by_threads: Vec<ThreadCeilings>,
    /// Microseconds that starting and joining one operation on all threads takes.
    pub barrier_us: f64,
}

/// What some threads reach together.
#[derive(Clone, Copy, Debug)]
pub struct ThreadCeilings {
    /// How many.
    pub threads: usize,
    /// Bytes read from memory per second.
    pub read: f64,
    /// Integer operations per second.
    pub int8: f64,
    /// Float operations per second.
    pub float: f64,
}

impl Ceilings {
    /// Measures 1, 2, 4, … and `threads` threads; takes a second or two. Memory is read from `bytes`, which should be
    /// much larger than the caches. `progress` hears (done, in all).
    pub fn measure(threads: usize, bytes: &[u8], mut progress: impl FnMut(usize, usize)) -> Ceilings {
        let bytes = &bytes[..bytes.len().min(READ_BYTES)];
        let counts = thread_counts(threads);
        let (mut by_threads, mut barrier) = (Vec::new(), 0.0);
        for &threads in &counts {
            progress(by_threads.len(), counts.len());
            let pool = Pool::new(threads);
            let best = |measure: &dyn Fn() -> f64| (0..ATTEMPTS).map(|_| measure()).fold(0.0, f64::max);
            by_threads.push(ThreadCeilings {
                threads,
                read: best(&|| read_speed(&pool, Ops::best(), bytes)),
                int8: best(&|| peak_speed(&pool, Ops::best(), Peak::Int8)),
                float: best(&|| peak_speed(&pool, Ops::best(), Peak::Float)),
            });
            barrier = 1.0 / best(&|| 1.0 / barrier_seconds(&pool, BARRIERS));
        }
        progress(counts.len(), counts.len());
        Ceilings { instructions: Ops::best().name(), by_threads, barrier_us: barrier * 1e6 }
    }

    /// What all threads reach.
    pub fn all_threads(&self) -> ThreadCeilings {
        self.by_threads[self.by_threads.len() - 1]
    }
}

/// The largest stretch of a model's weights, to measure memory as the model will read it: how a file is mapped (in
/// small or in huge pages) makes a difference.
pub fn largest_part(files: &ModelFiles) -> TensorBytes {
    let parts = files.joined(|_| true).into_iter();
    parts.max_by_key(|part| part.as_ref().len()).expect("a model has tensors")
}

/// Memory of this process, for machines without a model at hand.
pub fn plain_memory() -> Vec<u8> {
    // Ones, because memory that was never written may be one page of zeros everywhere.
    vec![1; READ_BYTES / 2]
}

/// Bytes per second at which the disk gives the beginning of a file that is not in memory.
pub fn disk_speed(path: &Path) -> Result<f64, EvalError> {
    let read = read_cold(path, DISK_BYTES)?;
    Ok(read.bytes as f64 / read.time.as_secs_f64().max(1e-9))
}

/// 1, 2, 4, … and `most`.
fn thread_counts(most: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = (0..).map(|power| 1 << power).take_while(|&count| count < most).collect();
    counts.push(most);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_counts_double_and_end_with_all() {
        for (most, counts) in
            [(1, &[1][..]), (2, &[1, 2]), (3, &[1, 2, 3]), (8, &[1, 2, 4, 8]), (12, &[1, 2, 4, 8, 12])]
        {
            assert_eq!(thread_counts(most), counts);
        }
    }
}
