//! Formats with blocks of 256 in registers.

use std::arch::x86_64::*;
use std::ops::Range;

use super::codes32::{ROWS, halves8};
use super::dots::{add_pairs, add_scaled};
use super::lanes::{four_halves, integer_sums4, load, read_ahead, store_floats, store4};
use super::turn::turned;
use crate::Dtype;
use crate::activations::{Int8Block256, Rows};
use crate::codes::{CodeRange, with_format256};
use crate::ops::{Multiply, WeightRows};
use crate::pool::TileMut;
use crate::vector::pair;
use crate::x86::codes256::codes256_kernels;

pub(crate) use super::unpack256::{Registers, Unpacked, unpack};

codes256_kernels!("avx2,fma,f16c");

/// One block of eight rows; lane r of every register belongs to row r.
pub(crate) struct Tile {
    /// For every four columns, their codes.
    pub(crate) quants: [__m256i; 64],
    /// For every sixteen columns, their integer scale in both halves of a lane.
    pub(crate) factors: [__m256i; 16],
    /// 16-bit factors of pairs of partial sums of x, to be subtracted from the products as integers.
    pub(crate) offsets: [__m256i; 8],
    /// The same, with a scale of their own; only for formats that have minima.
    pub(crate) minima: [__m256i; 8],
    pub(crate) scales: __m256,
    pub(crate) minimum_scales: __m256,
}

/// Codes and x as the multiply wants them, unsigned × signed: the sign of a wide code moves to x.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn unsigned(range: CodeRange, codes: __m256i, x: __m256i) -> (__m256i, __m256i) {
    match range {
        CodeRange::Shifted { .. } => (codes, x),
        CodeRange::Wide => (_mm256_abs_epi8(codes), _mm256_sign_epi8(x, codes)),
    }
}

/// What the offset of shifted codes adds to the products, as factors of the sums of x.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn offset_factors(range: CodeRange, scales: __m256i) -> __m256i {
    match range {
        CodeRange::Shifted { offset, .. } => _mm256_mullo_epi16(scales, _mm256_set1_epi16(i16::from(offset))),
        CodeRange::Wide => _mm256_setzero_si256(),
    }
}

/// Sixteen 16-bit numbers, the even ones in the lower half and the odd ones in the upper.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn even_then_odd(numbers: __m256i) -> __m256i {
    let order = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    let split = _mm256_shuffle_epi8(numbers, _mm256_broadcastsi128_si256(order));
    _mm256_permute4x64_epi64::<0b11_01_10_00>(split)
}

/// What the codes of four rows times their integer scales are worth.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn scales4<const BYTES: usize, F: Registers<BYTES>>(blocks: [&[u8; BYTES]; 4]) -> __m128 {
    let [a, b, c, d] = blocks.map(|block| F::scale_bits(block).to_le_bytes());
    _mm_mul_ps(four_halves(a, b, c, d), _mm_set1_ps(F::FACTOR))
}

/// One block of eight rows, turned.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn turn<const BYTES: usize, F: Registers<BYTES>>(blocks: &[&[u8; BYTES]; ROWS]) -> Tile {
    /// Codes, scales, offsets and minima of one row.
    const ROW: usize = 256 + 3 * 32;
    let mut rows = [[0; ROW]; ROWS];
    for (row, block) in rows.iter_mut().zip(blocks) {
        let Unpacked { quants, scales, minima } = unpack::<BYTES, F>(block);
        let (parts, _) = row.as_chunks_mut::<32>();
        quants.iter().zip(parts.iter_mut()).for_each(|(&quants, part)| store32(quants, part));
        store32(scales, &mut parts[8]);
        store32(offset_factors(F::CODES, scales), &mut parts[9]);
        store32(minima, &mut parts[10]);
    }
    let rows = rows.each_ref();
    let mut quants = [_mm256_setzero_si256(); 64];
    for (run, words) in quants.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *words = turned(&rows, 32 * run);
    }
    let mut factors = [_mm256_setzero_si256(); 16];
    for (both, pair) in factors.as_chunks_mut::<2>().0.iter_mut().zip(turned(&rows, 256)) {
        both[0] = _mm256_blend_epi16::<0b1010_1010>(pair, _mm256_slli_epi32::<16>(pair));
        both[1] = _mm256_blend_epi16::<0b0101_0101>(pair, _mm256_srli_epi32::<16>(pair));
    }
    let scale_bits = blocks.map(|block| F::scale_bits(block).to_le_bytes());
    let scales = halves8(&scale_bits.each_ref(), 0);
    Tile {
        quants,
        factors,
        offsets: turned(&rows, 256 + 32),
        minima: turned(&rows, 256 + 64),
        scales: _mm256_mul_ps(scales, _mm256_set1_ps(F::FACTOR)),
        minimum_scales: F::MINIMUM_SCALE.map_or(_mm256_setzero_ps(), |at| halves8(blocks, at)),
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store32(values: __m256i, out: &mut [u8; 32]) {
    // SAFETY: the reference guarantees thirty-two writable bytes.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), values) }
}
