//! Formats with blocks of 32: integer sums of one block.

use std::arch::x86_64::*;

use super::interleaved32;
use super::lanes::{field, four_halves, integer_sums4, load, load16, pair, prefetch, store4};
use crate::activations::{Int8Block32, Rows};
use crate::blocks::{q4_0, q8_0};
use crate::ops::WeightRows;
use crate::pool::TileMut;
use crate::x86::LEAST_TURNED;
use crate::x86::block32::block32_loops;

block32_loops!("avx2,fma,f16c");

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn multiply_q8_0(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
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
pub(super) fn multiply_q4_0(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
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
