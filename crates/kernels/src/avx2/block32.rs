//! Formats with blocks of 32: integer sums of one block.

use std::arch::x86_64::*;

use super::interleaved32;
use super::lanes::{four_halves, integer_sums4, load, load16, read_ahead, store4};
use crate::activations::{Int8Block32, Rows};
use crate::blocks::{q4_0, q8_0};
use crate::ops::WeightRows;
use crate::pool::TileMut;
use crate::vector::{LEAST_TURNED, field, pair};

/// Multiplies weight rows with `partial` sums per block: eight integers whose total is weights · x, plus
/// `offset` × Σ x.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn multiply<const BYTES: usize>(
    weights: WeightRows<'_>,
    x: Rows<'_, Int8Block32>,
    out: &mut TileMut<'_>,
    offset: i32,
    partial: impl Fn(&[u8; BYTES], __m256i) -> __m256i,
) {
    for four in 0..weights.fours() {
        let [a, b, c, d] = weights.four(four).map(|row| row.as_chunks::<BYTES>().0);
        for column in 0..x.count() {
            let mut sums = _mm_setzero_ps();
            for ((((x, a), b), c), d) in x.row(column).iter().zip(a).zip(b).zip(c).zip(d) {
                let values = load(&x.values);
                read_ahead(weights.ahead, [a, b, c, d]);
                let raw = integer_sums4(partial(a, values), partial(b, values), partial(c, values), partial(d, values));
                let integers = _mm_sub_epi32(raw, _mm_set1_epi32(offset * x.sum));
                let scales = four_halves(pair(a, 0), pair(b, 0), pair(c, 0), pair(d, 0));
                sums = _mm_fmadd_ps(_mm_mul_ps(scales, _mm_set1_ps(x.scale)), _mm_cvtepi32_ps(integers), sums);
            }
            out.put4(column, four, store4(sums));
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn multiply_q8_0(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    if x.count() >= LEAST_TURNED {
        return interleaved32::turned_q8_0(weights, x, out);
    }
    multiply::<{ q8_0::BYTES }>(weights, x, out, 0, |block, x| {
        let quants = load::<[u8; 32]>(field(block, q8_0::QUANTS));
        // The multiply takes unsigned × signed, so the sign of the weight moves to x.
        let products = _mm256_maddubs_epi16(_mm256_abs_epi8(quants), _mm256_sign_epi8(x, quants));
        _mm256_madd_epi16(products, _mm256_set1_epi16(1))
    });
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn multiply_q4_0(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    if x.count() >= LEAST_TURNED {
        return interleaved32::turned_q4_0(weights, x, out);
    }
    multiply::<{ q4_0::BYTES }>(weights, x, out, q4_0::OFFSET, |block, x| {
        _mm256_madd_epi16(_mm256_maddubs_epi16(quants_q4_0(block), x), _mm256_set1_epi16(1))
    });
}

/// The thirty-two nibbles of a block, a byte each.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn quants_q4_0(block: &[u8; q4_0::BYTES]) -> __m256i {
    let bytes = load16(field(block, q4_0::QUANTS));
    _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16::<4>(bytes), bytes), _mm256_set1_epi8(15))
}
