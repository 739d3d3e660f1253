//! Arithmetic without memory and memory without arithmetic: how fast this instruction set is at best.

use std::arch::x86_64::*;
use std::hint::black_box;

use super::lanes::prefetch_into;
use crate::reading::ReadAhead;
use crate::scalar::peak as specification;

/// Sums in flight; more than latency times units.
const SUMS: usize = 12;

/// Products of bytes, summed in words; returns how many operations were done.
#[target_feature(enable = "avx2")]
pub(super) fn int8(rounds: usize) -> u64 {
    let (bytes, ones) = (_mm256_set1_epi8(black_box(1)), _mm256_set1_epi16(black_box(1)));
    let mut sums = [bytes; SUMS];
    for _ in 0..rounds {
        // Each product reads the sum before it, or the compiler would compute it once.
        sums.iter_mut().for_each(|sum| {
            *sum = _mm256_add_epi32(bytes, _mm256_madd_epi16(_mm256_maddubs_epi16(*sum, bytes), ones));
        });
    }
    black_box(sums);
    (2 * 32 * SUMS * rounds) as u64
}

/// Fused multiply-adds of floats; returns how many operations were done.
#[target_feature(enable = "avx2,fma")]
pub(super) fn float(rounds: usize) -> u64 {
    let factor = _mm256_set1_ps(black_box(0.5));
    let mut sums = [factor; SUMS];
    for _ in 0..rounds {
        sums.iter_mut().for_each(|sum| *sum = _mm256_fmadd_ps(*sum, factor, factor));
    }
    black_box(sums);
    (2 * 8 * SUMS * rounds) as u64
}

/// Reads every byte and returns a sum that keeps the compiler from leaving any out.
#[target_feature(enable = "avx2")]
pub(super) fn read(bytes: &[u8], ahead: ReadAhead) -> u64 {
    specification::read_streams(bytes, |piece| prefetch_into(ahead, piece, (ahead.bytes(), piece.len())))
}
