//! How four runs of 32 nibbles of four rows become registers, where each run has its own scale or all share one.

use std::arch::x86_64::*;

use super::lanes::{load, load16};
use crate::blocks::{int4_group128, q4_0, q4_1};
use crate::vector::field;

/// A format of nibbles, of which four runs of 32 take `BYTES`.
pub(crate) trait Nibbles<const BYTES: usize> {
    /// What was added to quants.
    const OFFSET: i32;
    /// Whether something is added to every number of a run.
    const HAS_MINIMA: bool = false;

    /// The nibbles of runs 0 and 1, half a register each, and of runs 2 and 3.
    ///
    /// # Safety
    /// The CPU must have AVX2.
    unsafe fn quants(bytes: &[u8; BYTES]) -> [__m256i; 2];

    /// What quants of four rows are worth and what is added to them.
    ///
    /// # Safety
    /// The CPU must have AVX2 and F16C.
    unsafe fn factors(rows: [&[u8; BYTES]; 4]) -> Factors;
}

/// One number for each of four rows: those of runs 0 and 1, half a register each, and those of runs 2 and 3.
pub(crate) struct Factors {
    pub(crate) scales: [__m256; 2],
    /// Zeros where a format has none.
    pub(crate) minima: [__m256; 2],
}

/// [`Nibbles::quants`] where the CPU is known to have AVX2.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn quants<const BYTES: usize, F: Nibbles<BYTES>>(bytes: &[u8; BYTES]) -> [__m256i; 2] {
    // SAFETY: this function itself may only be called where the CPU has AVX2.
    unsafe { F::quants(bytes) }
}

/// [`Nibbles::factors`] likewise.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn factors<const BYTES: usize, F: Nibbles<BYTES>>(rows: [&[u8; BYTES]; 4]) -> Factors {
    // SAFETY: this function itself may only be called where the CPU has AVX2 and F16C.
    unsafe { F::factors(rows) }
}

pub(crate) struct Q40;
pub(crate) struct Q41;
pub(crate) struct Int4;

impl Nibbles<{ 4 * q4_0::BYTES }> for Q40 {
    const OFFSET: i32 = q4_0::OFFSET;

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn quants(bytes: &[u8; 4 * q4_0::BYTES]) -> [__m256i; 2] {
        let run = |at: usize| load16(field(bytes, q4_0::BYTES * at + q4_0::QUANTS));
        [_mm256_set_m128i(run(1), run(0)), _mm256_set_m128i(run(3), run(2))]
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn factors(rows: [&[u8; 4 * q4_0::BYTES]; 4]) -> Factors {
        // A block has two bytes more than half a register. So a load that begins with one scale has the next in the
        // upper half, two bytes later; and one that begins earlier has both in another word of 32 bits.
        let start = |row: usize| load::<[u8; 32]>(field(rows[row], 0));
        let first =
            _mm256_unpacklo_epi64(_mm256_unpacklo_epi32(start(0), start(1)), _mm256_unpacklo_epi32(start(2), start(3)));
        let middle = |row: usize| load::<[u8; 32]>(field(rows[row], 2 * q4_0::BYTES - 4 * row));
        let two = _mm256_blend_epi32::<0b0010_0010>(middle(0), middle(1));
        let three = _mm256_blend_epi32::<0b0100_0100>(two, middle(2));
        let last = _mm256_blend_epi32::<0b1000_1000>(three, middle(3));
        let halves = _mm256_setr_epi8(
            0, 1, 4, 5, 8, 9, 12, 13, 0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 2, 3, 6, 7, 10, 11, 14, 15,
        );
        let first = _mm256_shuffle_epi8(first, halves);
        let last = _mm256_shuffle_epi8(last, halves);
        // Runs 0 and 2 lie in the lower half now, 1 and 3 in the upper.
        let runs = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_blend_epi32::<0b1100_1100>(first, last));
        let scales =
            [_mm256_cvtph_ps(_mm256_castsi256_si128(runs)), _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(runs))];
        Factors { scales, minima: [_mm256_setzero_ps(); 2] }
    }
}

impl Nibbles<{ 4 * q4_1::BYTES }> for Q41 {
    const OFFSET: i32 = 0;
    const HAS_MINIMA: bool = true;

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn quants(bytes: &[u8; 4 * q4_1::BYTES]) -> [__m256i; 2] {
        let run = |at: usize| load16(field(bytes, q4_1::BYTES * at + q4_1::QUANTS));
        [_mm256_set_m128i(run(1), run(0)), _mm256_set_m128i(run(3), run(2))]
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn factors(rows: [&[u8; 4 * q4_1::BYTES]; 4]) -> Factors {
        // Scale and minimum of each row, a word of 32 bits each; those of a later run at once in their place.
        let start = |row: usize| load16::<u8>(field(rows[row], 0));
        let first = _mm_unpacklo_epi64(_mm_unpacklo_epi32(start(0), start(1)), _mm_unpacklo_epi32(start(2), start(3)));
        let later = |run: usize| {
            let words = |row: usize| load16::<u8>(field(rows[row], q4_1::BYTES * run - 4 * row));
            let two = _mm_blend_epi32::<0b0010>(words(0), words(1));
            _mm_blend_epi32::<0b1000>(_mm_blend_epi32::<0b0100>(two, words(2)), words(3))
        };
        let split = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
        let apart = |words| _mm_shuffle_epi8(words, split);
        let (a, b, c, d) = (apart(first), apart(later(1)), apart(later(2)), apart(later(3)));
        let scales = [_mm256_cvtph_ps(_mm_unpacklo_epi64(a, b)), _mm256_cvtph_ps(_mm_unpacklo_epi64(c, d))];
        let minima = [_mm256_cvtph_ps(_mm_unpackhi_epi64(a, b)), _mm256_cvtph_ps(_mm_unpackhi_epi64(c, d))];
        Factors { scales, minima }
    }
}

impl Nibbles<{ int4_group128::BYTES }> for Int4 {
    const OFFSET: i32 = int4_group128::OFFSET;

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn quants(bytes: &[u8; int4_group128::BYTES]) -> [__m256i; 2] {
        let runs = |at: usize| load::<[u8; 32]>(field(bytes, int4_group128::QUANTS + at));
        [runs(0), runs(32)]
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn factors(rows: [&[u8; int4_group128::BYTES]; 4]) -> Factors {
        let start = |row: usize| load16::<u8>(field(rows[row], 0));
        let two = |row: usize| _mm_unpacklo_epi16(start(row), start(row + 1));
        let twice = _mm_shuffle_epi32::<0b01_00_01_00>(_mm_unpacklo_epi32(two(0), two(2)));
        Factors { scales: [_mm256_cvtph_ps(twice); 2], minima: [_mm256_setzero_ps(); 2] }
    }
}
