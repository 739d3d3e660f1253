//! Formats with blocks of 32: integer sums of one block, multiplied and added in one instruction.

use std::arch::x86_64::*;

use super::runs32::{Q40, Q80, ROWS, Runs};
use super::sixteen_rows::MOST;
use super::{codes32, four_blocks, many_columns32, sixteen_rows};
use crate::Dtype;
use crate::activations::{Int8Block32, Rows};
use crate::avx2;
use crate::avx2::lanes::{four_halves, load, read_ahead, store4};
use crate::blocks::{int4_group128, q4_0, q4_1, q8_0};
use crate::codes::{Format32, Int4Group128, Q4With1, with_format32};
use crate::ops::{Multiply, WeightRows};
use crate::pool::TileMut;
use crate::vector::{LEAST_TURNED, field, pair};

/// Multiplies weight rows, four at a time, with `N` columns; a lane of the float sums belongs to a row.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
fn multiply_columns<const N: usize>(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    let mut columns = [x.row(0); N];
    columns.iter_mut().enumerate().for_each(|(column, blocks)| *blocks = x.row(column));
    let pairs = x.length() / 2;
    for four in 0..weights.fours() {
        let [a, b, c, d] = weights.four(four).map(|row| row.as_chunks::<{ q8_0::BYTES }>().0);
        let rows = [a, b, c, d].map(|row| &row.as_chunks::<2>().0[..pairs]);
        let mut sums = [_mm_setzero_ps(); N];
        for at in 0..pairs {
            let rows = [&rows[0][at], &rows[1][at], &rows[2][at], &rows[3][at]];
            read_ahead(weights.ahead, rows);
            let (quants, scales) = quants_and_scales(rows);
            for column in 0..N {
                let x = &columns[column].as_chunks::<2>().0[at];
                let totals = totals(quants, [&x[0], &x[1]]);
                sums[column] = add(sums[column], scales[0], &x[0], totals[0]);
                sums[column] = add(sums[column], scales[1], &x[1], totals[1]);
            }
        }
        if x.length() % 2 == 1 {
            // A single block is multiplied twice, and the second product dropped.
            let last = |row: &[[u8; q8_0::BYTES]]| [*row.last().expect("as many blocks as x has"); 2];
            let rows = [last(a), last(b), last(c), last(d)];
            let (quants, scales) = quants_and_scales(rows.each_ref());
            for column in 0..N {
                let x = columns[column].last().expect("an odd number of blocks");
                let totals = totals(quants, [x, x]);
                sums[column] = add(sums[column], scales[0], x, totals[0]);
            }
        }
        for column in 0..N {
            out.put4(column, four, store4(sums[column]));
        }
    }
}

/// Two blocks of four rows of Q8_0: quants that are 128 too large, and the scales of the first and of the second.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx2,f16c")]
fn quants_and_scales([a, b, c, d]: [&[[u8; q8_0::BYTES]; 2]; 4]) -> ([__m512i; 4], [__m128; 2]) {
    let quants = |blocks: &[[u8; q8_0::BYTES]; 2]| {
        let bytes = |block| load::<[u8; 32]>(field(block, q8_0::QUANTS));
        _mm512_xor_si512(join(bytes(&blocks[0]), bytes(&blocks[1])), _mm512_set1_epi8(-128))
    };
    let scales = |at: usize| four_halves(pair(&a[at], 0), pair(&b[at], 0), pair(&c[at], 0), pair(&d[at], 0));
    ([quants(a), quants(b), quants(c), quants(d)], [scales(0), scales(1)])
}

/// Σ quant × x of two blocks of four rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2")]
fn totals([a, b, c, d]: [__m512i; 4], x: [&Int8Block32; 2]) -> [__m128i; 2] {
    let values = join(load(&x[0].values), load(&x[1].values));
    let product = |quants| _mm512_dpbusd_epi32(_mm512_setzero_si512(), quants, values);
    two_sums4([product(a), product(b), product(c), product(d)])
}

/// Adds what one block of four rows gives; its integers are 128 × Σ x too large.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn add(sums: __m128, scales: __m128, x: &Int8Block32, totals: __m128i) -> __m128 {
    let surplus = _mm_set1_epi32(128_i32.wrapping_mul(x.sum));
    let scales = _mm_mul_ps(scales, _mm_set1_ps(x.scale));
    _mm_fmadd_ps(scales, _mm_cvtepi32_ps(_mm_sub_epi32(totals, surplus)), sums)
}

/// The sums of the lower and of the upper halves of four vectors.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn two_sums4(vectors: [__m512i; 4]) -> [__m128i; 2] {
    let quarters = quarter_sums4(vectors);
    let halves = _mm512_add_epi32(quarters, _mm512_shuffle_i32x4::<0b10_11_00_01>(quarters, quarters));
    [_mm512_castsi512_si128(halves), _mm512_extracti32x4_epi32::<2>(halves)]
}

#[inline]
#[target_feature(enable = "avx512f")]
fn join(low: __m256i, high: __m256i) -> __m512i {
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
}

/// The sums of the quarters of four vectors: those of the first quarters in the first quarter.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn quarter_sums4([a, b, c, d]: [__m512i; 4]) -> __m512i {
    let pairs = |a, b| _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let (ab, cd) = (pairs(a, b), pairs(c, d));
    _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd))
}

/// The multiply takes unsigned × signed, so few columns add 128 to the weights and take 128 × Σ x away again.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply_q8_0(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    match x.count() {
        1 => multiply_columns::<1>(weights, x, out),
        2 => multiply_columns::<2>(weights, x, out),
        3 => multiply_columns::<3>(weights, x, out),
        _ if weights.count() < ROWS => avx2::block32::multiply_q8_0(weights, x, out),
        _ => multiply_many::<{ q8_0::BYTES }, Q80>(weights, x, out),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply_q4_0(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    match x.count() {
        ..LEAST_TURNED => four_blocks::multiply_q4_0(weights, x, out),
        _ => multiply_codes::<{ q4_0::BYTES }, Q40>(weights, x, out),
    }
}

/// The kernel of any format with runs of 32 that the table does not name.
pub(super) fn kernel(dtype: Dtype) -> Multiply<Int8Block32> {
    match dtype {
        Dtype::Q4_1 => multiply_q4_1,
        Dtype::Int4Group128 => multiply_int4,
        _ => with_format32!(dtype, multiply_codes),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
fn multiply_q4_1(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    match x.count() {
        ..LEAST_TURNED => four_blocks::multiply_q4_1(weights, x, out),
        _ => multiply_codes::<{ q4_1::BYTES }, Q4With1>(weights, x, out),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
fn multiply_int4(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    match x.count() {
        ..LEAST_TURNED => four_blocks::multiply_int4(weights, x, out),
        _ => multiply_codes::<{ int4_group128::BYTES }, Int4Group128>(weights, x, out),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
fn multiply_codes<const BYTES: usize, F: Format32<BYTES>>(
    weights: WeightRows<'_>,
    x: Rows<'_, Int8Block32>,
    out: &mut TileMut<'_>,
) {
    match x.count() {
        ..LEAST_TURNED => codes32::multiply_few::<BYTES, F>(weights, x, out),
        _ if weights.count() < ROWS => avx2::codes32::multiply::<BYTES, F>(weights, x, out),
        _ => multiply_many::<BYTES, F>(weights, x, out),
    }
}

/// At least [`ROWS`] rows times at least [`LEAST_TURNED`] columns.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
fn multiply_many<const BYTES: usize, F: Runs<BYTES>>(
    weights: WeightRows<'_>,
    x: Rows<'_, Int8Block32>,
    out: &mut TileMut<'_>,
) {
    if x.count() <= MOST {
        sixteen_rows::multiply::<BYTES, F>(weights, x, out);
    } else {
        many_columns32::multiply_rows::<BYTES, F>(weights, x, out);
    }
}
