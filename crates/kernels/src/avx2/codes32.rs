//! Formats with runs of 32 in registers.

use std::arch::x86_64::*;
use std::ops::Range;

use super::dots::{add_fours, add_small_fours};
use super::lanes::{bits_to_bytes, four_halves, integer_sums4, load, load16, read_ahead, store_floats, store4};
use super::turn::turned;
use crate::Dtype;
use crate::activations::{Int8Block32, Rows};
use crate::codes::{self, Format32, Scale, with_format32};
use crate::ops::{Multiply, WeightRows};
use crate::pool::TileMut;
use crate::vector::{LEAST_TURNED, field, pair};
use crate::x86::codes32::{codes32_kernels, few_codes32_kernels};

codes32_kernels!("avx2,fma,f16c");

/// Weight rows of a tile.
pub(crate) const ROWS: usize = 8;

/// One run of eight rows; lane r of every register belongs to row r.
pub(crate) struct Tile {
    /// For every four columns, their codes.
    pub(crate) quants: [__m256i; 8],
    pub(crate) scales: __m256,
    pub(crate) zeros: __m256i,
    /// Only for formats that have minima.
    pub(crate) minima: __m256,
}

/// The codes of one run, a byte each.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn codes<const BYTES: usize, F: Format32<BYTES>>(block: &[u8; BYTES], run: usize) -> __m256i {
    let bytes = load16(field(block, F::QUANTS + 16 * run));
    let nibbles = _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16::<4>(bytes), bytes), _mm256_set1_epi8(15));
    if let Some(levels) = F::LEVELS {
        return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load16(&levels.map(|level| level as u8))), nibbles);
    }
    let Some(at) = F::HIGH_BITS else { return nibbles };
    let set = bits_to_bytes(u32::from_le_bytes(*field(block, at)));
    _mm256_or_si256(nibbles, _mm256_and_si256(set, _mm256_set1_epi8(16)))
}

/// Codes and x as the multiply wants them, unsigned × signed: the sign of a code moves to x.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn unsigned<const BYTES: usize, F: Format32<BYTES>>(codes: __m256i, x: __m256i) -> (__m256i, __m256i) {
    if F::SIGNED { (_mm256_abs_epi8(codes), _mm256_sign_epi8(x, codes)) } else { (codes, x) }
}

/// What the codes of four rows are worth.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn scales4<const BYTES: usize, F: Format32<BYTES>>([a, b, c, d]: [&[u8; BYTES]; 4]) -> __m128 {
    match F::SCALE {
        Scale::Half => four_halves(pair(a, 0), pair(b, 0), pair(c, 0), pair(d, 0)),
        Scale::Exponent => {
            let exponents = [a, b, c, d].map(|block| i32::from(block[0]));
            let [a, b, c, d] = exponents;
            _mm256_castps256_ps128(powers_of_two(_mm256_castsi128_si256(_mm_setr_epi32(a, b, c, d))))
        }
    }
}

/// The codes of four rows that stand for zero.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn zeros4<const BYTES: usize, F: Format32<BYTES>>(blocks: [&[u8; BYTES]; 4]) -> __m128i {
    let [a, b, c, d] = blocks.map(|block| codes::zero::<BYTES, F>(block));
    _mm_setr_epi32(a, b, c, d)
}

/// Half of 2^(exponent − 127), as the specification's `mxfp4::scale`.
#[inline]
#[target_feature(enable = "avx2")]
fn powers_of_two(exponents: __m256i) -> __m256 {
    let normal = _mm256_slli_epi32::<23>(_mm256_sub_epi32(exponents, _mm256_set1_epi32(1)));
    let subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x0020_0000), exponents);
    let small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), exponents);
    _mm256_castsi256_ps(_mm256_blendv_epi8(normal, subnormal, small))
}

/// One run of eight rows, turned.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn turn<const BYTES: usize, F: Format32<BYTES>>(blocks: &[&[u8; BYTES]; ROWS], run: usize) -> Tile {
    let mut rows = [[0; 32]; ROWS];
    for (row, block) in rows.iter_mut().zip(blocks) {
        // SAFETY: the reference guarantees thirty-two writable bytes.
        unsafe { _mm256_storeu_si256(row.as_mut_ptr().cast(), codes::<BYTES, F>(block, run)) };
    }
    let zeros = blocks.map(|block| codes::zero::<BYTES, F>(block));
    // SAFETY: the array has eight readable words.
    let zeros = unsafe { _mm256_loadu_si256(zeros.as_ptr().cast()) };
    let scales = match F::SCALE {
        Scale::Half => halves8(blocks, 0),
        Scale::Exponent => {
            let exponents = blocks.map(|block| i32::from(block[0]));
            // SAFETY: the array has eight readable words.
            powers_of_two(unsafe { _mm256_loadu_si256(exponents.as_ptr().cast()) })
        }
    };
    let minima = F::MINIMUM.map_or(_mm256_setzero_ps(), |at| halves8(blocks, at));
    Tile { quants: turned(&rows.each_ref(), 0), scales, zeros, minima }
}

/// The f16 at `at` of eight blocks.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn halves8<const BYTES: usize>(blocks: &[&[u8; BYTES]; ROWS], at: usize) -> __m256 {
    let halves = blocks.map(|block| pair(block, at));
    _mm256_cvtph_ps(load16(halves.as_flattened().try_into().expect("eight pairs of bytes")))
}
