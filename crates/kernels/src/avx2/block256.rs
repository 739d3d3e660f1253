//! Formats with blocks of 256: unpacking and integer sums, 32 quants to a register.

use std::arch::x86_64::*;

use super::interleaved256;
use super::lanes::{field, four_halves, integer_sums4, load, load16, pair, prefetch, store4};
use crate::activations::{Int8Block256, Rows};
use crate::blocks::{q4_k, q5_k, q6_k};
use crate::ops::WeightRows;
use crate::pool::TileMut;
use crate::x86::LEAST_TURNED;
use crate::x86::four_rows::four_row_loops;

/// One block of one row, ready to be multiplied with any number of columns.
#[derive(Clone, Copy)]
struct Unpacked {
    /// Eight runs of 32 unsigned quants.
    quants: [__m256i; 8],
    /// 16-bit scales: run `j` takes entry `j` of the lower half for its first 16 quants, of the upper for its last.
    scales: __m256i,
    /// 16-bit factors of the sixteen partial sums of x that are to be subtracted.
    offsets: __m256i,
}

/// Σ scale × quant × x as eight integers.
#[inline]
#[target_feature(enable = "avx2")]
fn products(block: &Unpacked, x: &&[i8; 256]) -> __m256i {
    let mut sum = _mm256_setzero_si256();
    for (run, x) in x.as_chunks::<32>().0.iter().enumerate() {
        let pairs = _mm256_maddubs_epi16(block.quants[run], load(x));
        let pick = _mm256_set1_epi16(((2 * run + 1) << 8 | (2 * run)) as i16);
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_shuffle_epi8(block.scales, pick)));
    }
    sum
}

/// The kernel reads x where it lies.
#[inline]
#[target_feature(enable = "avx2")]
fn load_x<const BYTES: usize, F: Format<BYTES>>(x: &Int8Block256) -> &[i8; 256] {
    &x.values
}

four_row_loops!("avx2,fma,f16c");

/// How a format turns four rows' integers into floats.
pub(crate) trait Format<const BYTES: usize> {
    /// Whether offsets have a scale of their own; otherwise they are subtracted from the products as integers.
    const OWN_MINIMUM: bool;
    /// Where the f16 scale lies.
    const SCALE: usize;
    /// The greatest unsigned quant.
    const GREATEST: i32;
}

pub(crate) struct Q4K;
pub(crate) struct Q5K;
pub(crate) struct Q6K;

impl Format<{ q4_k::BYTES }> for Q4K {
    const OWN_MINIMUM: bool = true;
    const SCALE: usize = 0;
    const GREATEST: i32 = 15;
}

impl Format<{ q5_k::BYTES }> for Q5K {
    const OWN_MINIMUM: bool = true;
    const SCALE: usize = 0;
    const GREATEST: i32 = 31;
}

impl Format<{ q6_k::BYTES }> for Q6K {
    const OWN_MINIMUM: bool = false;
    const SCALE: usize = q6_k::SCALE;
    const GREATEST: i32 = 63;
}

/// The eight 6-bit scales (twice, for both halves of a register) and minima (each twice, per 16 of x) of Q4_K and Q5_K.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn scales_and_minima<const BYTES: usize>(block: &[u8; BYTES]) -> (__m256i, __m256i) {
    // Bytes 4..16 are the packed scales, so a load from 0 keeps inside the block.
    let header = load16(field(block, 0));
    let low = _mm_setr_epi8(4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15);
    let high = _mm_setr_epi8(-1, -1, -1, -1, 4, 5, 6, 7, -1, -1, -1, -1, 8, 9, 10, 11);
    let packed = _mm_shuffle_epi8(header, low);
    // Entries 4..8 of the scales take low nibbles, of the minima high nibbles.
    let shifted = _mm_srli_epi16::<4>(packed);
    let nibbles = _mm_blend_epi32::<0b1000>(packed, shifted);
    let mask = _mm_setr_epi32(0x3f3f_3f3f, 0x0f0f_0f0f, 0x3f3f_3f3f, 0x0f0f_0f0f);
    let upper = _mm_and_si128(_mm_srli_epi16::<2>(_mm_shuffle_epi8(header, high)), _mm_set1_epi8(0x30));
    let bytes = _mm_or_si128(_mm_and_si128(nibbles, mask), upper);
    let scales = _mm256_broadcastsi128_si256(_mm_cvtepu8_epi16(bytes));
    let minima = _mm_srli_si128::<8>(bytes);
    (scales, _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(minima, minima)))
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn multiply_q4_k(weights: WeightRows<'_>, x: Rows<'_, Int8Block256>, out: &mut TileMut<'_>) {
    if x.count() >= LEAST_TURNED {
        return interleaved256::turned_q4_k(weights, x, out);
    }
    multiply::<{ q4_k::BYTES }, Q4K>(weights, x, out, |block| {
        let (scales, offsets) = scales_and_minima(block);
        let mut quants = [_mm256_setzero_si256(); 8];
        let nibble = _mm256_set1_epi8(15);
        for pair in 0..4 {
            let bytes = load::<[u8; 32]>(field(block, q4_k::QUANTS + 32 * pair));
            quants[2 * pair] = _mm256_and_si256(bytes, nibble);
            quants[2 * pair + 1] = _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), nibble);
        }
        Unpacked { quants, scales, offsets }
    });
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn multiply_q5_k(weights: WeightRows<'_>, x: Rows<'_, Int8Block256>, out: &mut TileMut<'_>) {
    if x.count() >= LEAST_TURNED {
        return interleaved256::turned_q5_k(weights, x, out);
    }
    multiply::<{ q5_k::BYTES }, Q5K>(weights, x, out, |block| {
        let (scales, offsets) = scales_and_minima(block);
        let high = load::<[u8; 32]>(field(block, q5_k::HIGH_BITS));
        let (nibble, fifth) = (_mm256_set1_epi8(15), _mm256_set1_epi8(16));
        let mut quants = [_mm256_setzero_si256(); 8];
        for pair in 0..4 {
            let bytes = load::<[u8; 32]>(field(block, q5_k::QUANTS + 32 * pair));
            // Bit 2 × pair moves to bit 4, bit 2 × pair + 1 as well.
            let shift = |by: i32| match by {
                0.. => _mm256_srl_epi16(high, _mm_cvtsi32_si128(by)),
                _ => _mm256_sll_epi16(high, _mm_cvtsi32_si128(-by)),
            };
            let (first, second) = (shift(2 * pair as i32 - 4), shift(2 * pair as i32 - 3));
            quants[2 * pair] = _mm256_or_si256(_mm256_and_si256(bytes, nibble), _mm256_and_si256(first, fifth));
            quants[2 * pair + 1] = _mm256_or_si256(
                _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), nibble),
                _mm256_and_si256(second, fifth),
            );
        }
        Unpacked { quants, scales, offsets }
    });
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn multiply_q6_k(weights: WeightRows<'_>, x: Rows<'_, Int8Block256>, out: &mut TileMut<'_>) {
    if x.count() >= LEAST_TURNED {
        return interleaved256::turned_q6_k(weights, x, out);
    }
    multiply::<{ q6_k::BYTES }, Q6K>(weights, x, out, |block| {
        let (nibble, pairs) = (_mm256_set1_epi8(15), _mm256_set1_epi8(0x30));
        let mut quants = [_mm256_setzero_si256(); 8];
        for half in 0..2 {
            let first = load::<[u8; 32]>(field(block, 64 * half));
            let second = load::<[u8; 32]>(field(block, 64 * half + 32));
            let high = load::<[u8; 32]>(field(block, q6_k::HIGH_BITS + 32 * half));
            let join = |low, high| _mm256_or_si256(_mm256_and_si256(low, nibble), _mm256_and_si256(high, pairs));
            quants[4 * half] = join(first, _mm256_slli_epi16::<4>(high));
            quants[4 * half + 1] = join(second, _mm256_slli_epi16::<2>(high));
            quants[4 * half + 2] = join(_mm256_srli_epi16::<4>(first), high);
            quants[4 * half + 3] = join(_mm256_srli_epi16::<4>(second), _mm256_srli_epi16::<2>(high));
        }
        let bytes = load16(field(block, q6_k::SCALES));
        let split = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
        let scales = _mm256_cvtepi8_epi16(_mm_shuffle_epi8(bytes, split));
        let offsets = _mm256_slli_epi16::<5>(_mm256_cvtepi8_epi16(bytes));
        Unpacked { quants, scales, offsets }
    });
}
