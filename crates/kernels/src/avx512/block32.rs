//! Formats with blocks of 32: integer sums of one block, multiplied and added in one instruction.

use std::arch::x86_64::*;

use super::interleaved32;
use crate::activations::{Int8Block32, Rows};
use crate::avx2::block32::quants_q4_0;
use crate::avx2::lanes::{field, four_halves, integer_sums4, load, pair, prefetch, store4};
use crate::blocks::{q4_0, q8_0};
use crate::ops::WeightRows;
use crate::pool::TileMut;
use crate::x86::LEAST_TURNED;
use crate::x86::block32::block32_loops;

block32_loops!("avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c");

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply_q8_0(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    if x.count() >= LEAST_TURNED {
        return interleaved32::turned_q8_0(weights, x, out);
    }
    // The multiply takes unsigned × signed, so 128 is added to the weights and 128 × Σ x taken away again.
    multiply::<{ q8_0::BYTES }>(weights, x, out, 128, |block, x| {
        let quants = _mm256_xor_si256(load::<[u8; 32]>(field(block, q8_0::QUANTS)), _mm256_set1_epi8(-128));
        _mm256_dpbusd_epi32(_mm256_setzero_si256(), quants, x)
    });
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply_q4_0(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    if x.count() >= LEAST_TURNED {
        return interleaved32::turned_q4_0(weights, x, out);
    }
    multiply::<{ q4_0::BYTES }>(weights, x, out, q4_0::OFFSET, |block, x| {
        _mm256_dpbusd_epi32(_mm256_setzero_si256(), quants_q4_0(block), x)
    });
}
