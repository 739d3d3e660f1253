//! Arithmetic without memory and memory without arithmetic: how fast this instruction set is at best.

use std::arch::aarch64::*;
use std::hint::black_box;

use super::lanes::{dot, prefetch_into};
use crate::reading::ReadAhead;
use crate::scalar::peak as specification;

/// Sums in flight; more than latency times units.
const SUMS: usize = 16;

/// Products of bytes, summed in words; returns how many operations were done.
#[target_feature(enable = "neon,dotprod")]
pub(super) fn int8(rounds: usize) -> u64 {
    let bytes = vdupq_n_s8(black_box(1));
    let mut sums = [vreinterpretq_s32_s8(bytes); SUMS];
    for _ in 0..rounds {
        sums.iter_mut().for_each(|sum| *sum = dot(*sum, bytes, bytes));
    }
    black_box(sums);
    (2 * 16 * SUMS * rounds) as u64
}

/// Fused multiply-adds of floats; returns how many operations were done.
#[target_feature(enable = "neon")]
pub(super) fn float(rounds: usize) -> u64 {
    let factor = vdupq_n_f32(black_box(0.5));
    let mut sums = [factor; SUMS];
    for _ in 0..rounds {
        sums.iter_mut().for_each(|sum| *sum = vfmaq_f32(factor, *sum, factor));
    }
    black_box(sums);
    (2 * 4 * SUMS * rounds) as u64
}

/// Reads every byte and returns a sum that keeps the compiler from leaving any out.
#[target_feature(enable = "neon")]
pub(super) fn read(bytes: &[u8], ahead: ReadAhead) -> u64 {
    specification::read_streams(bytes, |piece| prefetch_into(ahead, piece, (ahead.bytes(), piece.len())))
}
