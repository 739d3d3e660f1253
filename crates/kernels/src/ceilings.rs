//! What this machine can do at best: reading memory, multiplying in registers, joining threads.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Ops, Pool, Reading};

/// Bytes that one task reads: large enough for long streams, small enough to balance the threads.
const PART: usize = 8 << 20;
/// Rounds of arithmetic in one task, and tasks for each thread.
const ROUNDS: usize = 10_000;
const TASKS: usize = 64;
/// How often a thread looks for the others before it lets them run on its own core.
const SPINS_BEFORE_YIELD: usize = 10_000;

/// A kind of arithmetic in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peak {
    /// Products of bytes, summed in words.
    Int8,
    /// Fused multiply-adds of single precision.
    Float,
}

/// Bytes per second at which the threads of the pool read `bytes`, in the fastest of the ways that kernels may choose.
pub fn read_speed(pool: &Pool, ops: &Ops, bytes: &[u8]) -> f64 {
    let speed = |ahead| {
        let begin = Instant::now();
        pool.run(bytes.len().div_ceil(PART), &|_, task| {
            black_box(ops.ceilings.read(&bytes[task * PART..bytes.len().min((task + 1) * PART)], ahead));
        });
        rate(bytes.len() as f64, begin.elapsed())
    };
    Reading::CANDIDATES.iter().filter(|reading| reading.far).map(|reading| speed(reading.ahead)).fold(0.0, f64::max)
}

/// Operations per second that the threads of the pool reach in registers.
pub fn peak_speed(pool: &Pool, ops: &Ops, peak: Peak) -> f64 {
    let done = AtomicU64::new(0);
    let begin = Instant::now();
    pool.run(TASKS * pool.threads(), &|_, _| {
        let operations = match peak {
            Peak::Int8 => ops.ceilings.peak_int8(ROUNDS),
            Peak::Float => ops.ceilings.peak_float(ROUNDS),
        };
        done.fetch_add(operations, Ordering::Relaxed);
    });
    rate(done.into_inner() as f64, begin.elapsed())
}

/// Seconds from the start of an operation to its end when all threads meet in it and do nothing else; the average of
/// `count` operations.
pub fn barrier_seconds(pool: &Pool, count: u32) -> f64 {
    let begin = Instant::now();
    for _ in 0..count {
        let here = AtomicUsize::new(0);
        pool.run(pool.threads(), &|_, _| {
            here.fetch_add(1, Ordering::AcqRel);
            let mut spins = 0;
            while here.load(Ordering::Acquire) < pool.threads() {
                spins += 1;
                if spins < SPINS_BEFORE_YIELD { spin_loop() } else { thread::yield_now() }
            }
        });
    }
    begin.elapsed().as_secs_f64() / f64::from(count.max(1))
}

fn rate(amount: f64, time: Duration) -> f64 {
    amount / time.as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ceiling_is_above_zero() {
        let pool = Pool::new(2);
        for ops in Ops::available() {
            assert!(read_speed(&pool, ops, &vec![1; 3 * PART + 5]) > 0.0);
            assert_eq!(read_speed(&pool, ops, &[]), 0.0);
            for peak in [Peak::Int8, Peak::Float] {
                assert!(peak_speed(&pool, ops, peak) > 0.0, "{} {peak:?}", ops.name());
            }
        }
        assert!(barrier_seconds(&pool, 10) > 0.0);
    }
}
