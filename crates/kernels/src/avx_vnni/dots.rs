//! Sums of products of bytes, the step in which the instruction sets differ.

use std::arch::x86_64::*;

use crate::x86::dots::vnni_dots;

vnni_dots!("avxvnni,avx2", _mm256_dpbusd_avx_epi32, _mm256_dpwssd_avx_epi32);

/// sum + a × b over four registers, in fours of unsigned a and signed b.
#[inline]
#[target_feature(enable = "avxvnni,avx2")]
pub(super) fn add_small_fours(sum: __m256i, a: &[__m256i; 4], b: [__m256i; 4]) -> __m256i {
    let first = add_fours(add_fours(sum, a[0], b[0]), a[1], b[1]);
    add_fours(add_fours(first, a[2], b[2]), a[3], b[3])
}

/// Lower and upper nibbles of two blocks of 32, half a register each, times as many bytes: sums of eight products.
#[inline]
#[target_feature(enable = "avxvnni,avx2")]
pub(super) fn nibble_products(low: (__m256i, __m256i), high: (__m256i, __m256i)) -> __m256i {
    add_fours(add_fours(_mm256_setzero_si256(), low.0, low.1), high.0, high.1)
}

/// The sums of the halves of four such registers: those of the lower halves in the lower half.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn lane_sums4(a: __m256i, b: __m256i, c: __m256i, d: __m256i) -> __m256i {
    _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d))
}

/// [`add_pairs`] as one instruction. Of the intrinsic the compiler makes a multiply and an addition, to shorten a chain
/// that four rows side by side hide.
#[inline]
#[target_feature(enable = "avxvnni,avx2")]
pub(super) fn add_pairs_fused(sum: __m256i, pairs: __m256i, factors: __m256i) -> __m256i {
    let mut sum = sum;
    // SAFETY: an instruction that this function's features promise, on registers alone.
    unsafe {
        std::arch::asm!(
            "{{vex}} vpdpwssd {sum}, {pairs}, {factors}",
            sum = inout(ymm_reg) sum,
            pairs = in(ymm_reg) pairs,
            factors = in(ymm_reg) factors,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}
