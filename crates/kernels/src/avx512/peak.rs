//! Arithmetic without memory and memory without arithmetic: how fast this instruction set is at best.

use std::arch::x86_64::*;
use std::hint::black_box;

use crate::avx2::lanes::prefetch_into;
use crate::reading::ReadAhead;
use crate::scalar::peak as specification;

/// Sums in flight; more than latency times units.
const SUMS: usize = 12;

/// Products of bytes, summed in words; returns how many operations were done.
#[target_feature(enable = "avx512f,avx512vnni")]
pub(super) fn int8(rounds: usize) -> u64 {
    let bytes = _mm512_set1_epi8(black_box(1));
    let mut sums = [bytes; SUMS];
    for _ in 0..rounds {
        sums.iter_mut().for_each(|sum| *sum = _mm512_dpbusd_epi32(*sum, bytes, bytes));
    }
    black_box(sums);
    (2 * 64 * SUMS * rounds) as u64
}

/// Fused multiply-adds of floats; returns how many operations were done.
#[target_feature(enable = "avx512f")]
pub(super) fn float(rounds: usize) -> u64 {
    let factor = _mm512_set1_ps(black_box(0.5));
    let mut sums = [factor; SUMS];
    for _ in 0..rounds {
        sums.iter_mut().for_each(|sum| *sum = _mm512_fmadd_ps(*sum, factor, factor));
    }
    black_box(sums);
    (2 * 16 * SUMS * rounds) as u64
}

/// Reads every byte and returns a sum that keeps the compiler from leaving any out.
#[target_feature(enable = "avx512f,avx512vl,avx512bw")]
pub(super) fn read(bytes: &[u8], ahead: ReadAhead) -> u64 {
    specification::read_streams(bytes, |piece| prefetch_into(ahead, piece, (ahead.bytes(), piece.len())))
}
