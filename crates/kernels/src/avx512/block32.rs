//! Formats with blocks of 32: integer sums of one block, multiplied and added in one instruction.

use std::arch::x86_64::*;

use super::interleaved32;
use crate::activations::{Int8Block32, Rows};
use crate::avx2::lanes::{four_halves, load, load16, prefetch, store4};
use crate::blocks::{q4_0, q8_0};
use crate::ops::WeightRows;
use crate::pool::TileMut;
use crate::vector::{LEAST_TURNED, STREAM_AHEAD, field, four_streams, pair, write4};

/// Multiplies weight rows, four at a time; a lane of the float sums belongs to a row. `quants` unpacks two blocks, whose
/// numbers are `offset` too large.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
fn multiply<const BYTES: usize>(
    weights: WeightRows<'_>,
    x: Rows<'_, Int8Block32>,
    out: &mut TileMut<'_>,
    offset: i32,
    quants: impl Fn([&[u8; BYTES]; 2]) -> __m512i,
) {
    for rows in four_streams(weights.count()) {
        let [a, b, c, d] = rows.map(|row| weights.row(row).as_chunks::<BYTES>().0);
        for column in 0..x.count() {
            let (pairs, last) = x.row(column).as_chunks::<2>();
            let mut sums = _mm_setzero_ps();
            let [pairs_a, pairs_b, pairs_c, pairs_d] = [a, b, c, d].map(|row| row.as_chunks::<2>().0);
            for ((((x, a), b), c), d) in pairs.iter().zip(pairs_a).zip(pairs_b).zip(pairs_c).zip(pairs_d) {
                let pairs = [[&a[0], &a[1]], [&b[0], &b[1]], [&c[0], &c[1]], [&d[0], &d[1]]];
                let totals = totals(pairs, [&x[0], &x[1]], &quants);
                sums = add(sums, [&a[0], &b[0], &c[0], &d[0]], &x[0], (totals[0], offset));
                sums = add(sums, [&a[1], &b[1], &c[1], &d[1]], &x[1], (totals[1], offset));
            }
            if let [x] = last {
                // A single block is multiplied twice, and the second product dropped.
                let blocks = [a, b, c, d].map(|row| row.last().expect("as many blocks as x has"));
                let totals = totals(blocks.map(|block| [block; 2]), [x, x], &quants);
                sums = add(sums, blocks, x, (totals[0], offset));
            }
            write4(out.row(column), rows, store4(sums));
        }
    }
}

/// Σ quant × x of two blocks of four rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2")]
fn totals<const BYTES: usize>(
    [a, b, c, d]: [[&[u8; BYTES]; 2]; 4],
    x: [&Int8Block32; 2],
    quants: &impl Fn([&[u8; BYTES]; 2]) -> __m512i,
) -> [__m128i; 2] {
    let values = join(load(&x[0].values), load(&x[1].values));
    let product = |blocks: [&[u8; BYTES]; 2]| {
        prefetch(blocks[0], STREAM_AHEAD);
        _mm512_dpbusd_epi32(_mm512_setzero_si512(), quants(blocks), values)
    };
    two_sums4([product(a), product(b), product(c), product(d)])
}

/// Adds what one block of four rows gives; its integers are `offset` × Σ x too large.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add<const BYTES: usize>(
    sums: __m128,
    [a, b, c, d]: [&[u8; BYTES]; 4],
    x: &Int8Block32,
    (totals, offset): (__m128i, i32),
) -> __m128 {
    let surplus = _mm_set1_epi32(offset.wrapping_mul(x.sum));
    let scales = four_halves(pair(a, 0), pair(b, 0), pair(c, 0), pair(d, 0));
    let scales = _mm_mul_ps(scales, _mm_set1_ps(x.scale));
    _mm_fmadd_ps(scales, _mm_cvtepi32_ps(_mm_sub_epi32(totals, surplus)), sums)
}

/// The sums of the lower and of the upper halves of four vectors.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn two_sums4([a, b, c, d]: [__m512i; 4]) -> [__m128i; 2] {
    let pairs = |a, b| _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let (ab, cd) = (pairs(a, b), pairs(c, d));
    let quarters = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    let halves = _mm512_add_epi32(quarters, _mm512_shuffle_i32x4::<0b10_11_00_01>(quarters, quarters));
    [_mm512_castsi512_si128(halves), _mm512_extracti32x4_epi32::<2>(halves)]
}

#[inline]
#[target_feature(enable = "avx512f")]
fn join(low: __m256i, high: __m256i) -> __m512i {
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply_q8_0(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    if x.count() >= LEAST_TURNED {
        return interleaved32::turned_q8_0(weights, x, out);
    }
    // The multiply takes unsigned × signed, so 128 is added to the weights and 128 × Σ x taken away again.
    multiply::<{ q8_0::BYTES }>(weights, x, out, 128, |blocks| {
        let bytes = |block| load::<[u8; 32]>(field(block, q8_0::QUANTS));
        _mm512_xor_si512(join(bytes(blocks[0]), bytes(blocks[1])), _mm512_set1_epi8(-128))
    });
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply_q4_0(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    if x.count() >= LEAST_TURNED {
        return interleaved32::turned_q4_0(weights, x, out);
    }
    multiply::<{ q4_0::BYTES }>(weights, x, out, q4_0::OFFSET, |blocks| {
        let bytes = |block| _mm256_broadcastsi128_si256(load16(field(block, q4_0::QUANTS)));
        // The low nibbles come first in a block, then the high ones.
        let shifts = _mm512_broadcast_i64x4(_mm256_setr_epi64x(0, 0, 4, 4));
        _mm512_and_si512(_mm512_srlv_epi64(join(bytes(blocks[0]), bytes(blocks[1])), shifts), _mm512_set1_epi8(15))
    });
}
