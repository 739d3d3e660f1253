//! Formats with blocks of 32: integer sums of one block, multiplied and added in one instruction.

use std::arch::x86_64::*;

use super::words::{splat_bytes, store};
use super::{codes32, four_blocks, interleaved32};
use crate::Dtype;
use crate::activations::{Int8Block32, Rows};
use crate::avx2::lanes::{four_halves, load, prefetch_from, read_ahead, store4};
use crate::blocks::{int4_group128, q4_0, q4_1, q8_0};
use crate::codes::{Int4Group128, Q4With1};
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

/// The multiply takes unsigned × signed, so few columns add 128 to the weights and take 128 × Σ x away again.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply_q8_0(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    match x.count() {
        1 => multiply_columns::<1>(weights, x, out),
        2 => multiply_columns::<2>(weights, x, out),
        3 => multiply_columns::<3>(weights, x, out),
        _ => interleaved32::turned_q8_0(weights, x, out),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply_q4_0(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    match x.count() {
        ..4 => four_blocks::multiply_q4_0(weights, x, out),
        _ if weights.count() < ROWS => interleaved32::turned_q4_0(weights, x, out),
        4 => sixteen_rows::<4>(weights, x, out),
        5 | 6 => sixteen_rows::<6>(weights, x, out),
        7 | 8 => sixteen_rows::<8>(weights, x, out),
        _ => interleaved32::turned_q4_0(weights, x, out),
    }
}

/// The sums of the quarters of four vectors: those of the first quarters in the first quarter.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn quarter_sums4([a, b, c, d]: [__m512i; 4]) -> __m512i {
    let pairs = |a, b| _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let (ab, cd) = (pairs(a, b), pairs(c, d));
    _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd))
}

/// The kernel of any format with runs of 32 that the table does not name.
pub(super) fn kernel(dtype: Dtype) -> Multiply<Int8Block32> {
    match dtype {
        Dtype::Q4_1 => multiply_q4_1,
        Dtype::Int4Group128 => multiply_int4,
        _ => codes32::kernel(dtype),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
fn multiply_q4_1(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    match x.count() {
        LEAST_TURNED.. => interleaved32::turned_q4_1(weights, x, out),
        // Filling up the last four of short rows would cost more than taking four gains.
        _ if !x.length().is_multiple_of(4) => codes32::multiply::<{ q4_1::BYTES }, Q4With1>(weights, x, out),
        _ => four_blocks::multiply_q4_1(weights, x, out),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
fn multiply_int4(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    if x.count() < LEAST_TURNED {
        four_blocks::multiply_int4(weights, x, out);
    } else {
        codes32::multiply::<{ int4_group128::BYTES }, Int4Group128>(weights, x, out);
    }
}

/// Rows of Q4_0 whose blocks are multiplied together, one to a lane.
const ROWS: usize = 16;

/// Multiplies rows of Q4_0 with up to `N` columns. Its blocks are so small that summing and scaling them row by row
/// would take longer than reading them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
fn sixteen_rows<const N: usize>(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    // Where there are fewer columns, the last repeats.
    let columns: [_; N] = std::array::from_fn(|column| x.row(column.min(x.count() - 1)));
    let nibbles = _mm512_set1_epi8(15);
    for first in (0..weights.count()).step_by(ROWS) {
        // A last short unit begins earlier, and computes some rows again.
        let first = first.min(weights.count() - ROWS);
        let unit = weights.rows_from(first, ROWS);
        let mut sums = [_mm512_setzero_ps(); N];
        for at in 0..x.length() {
            for half in 0..2 {
                // The rows that come next: memory is faster when half of them are read beside the other half.
                let soon = (ROWS + ROWS / 2 * half) * weights.row_bytes + ROWS / 2 * at * q4_0::BYTES;
                prefetch_from(unit, soon, ROWS / 2 * q4_0::BYTES);
            }
            let (words, scales) = turned_q4_0(unit, weights.row_bytes, at);
            for column in 0..N {
                let x = &columns[column][at];
                // Quants are too large by the offset.
                let mut low = _mm512_set1_epi32(q4_0::OFFSET.wrapping_mul(x.sum).wrapping_neg());
                let mut high = _mm512_setzero_si512();
                for word in 0..4 {
                    let (first, second) = (words[word], _mm512_srli_epi32::<4>(words[word]));
                    let [first, second] = [first, second].map(|quants| _mm512_and_si512(quants, nibbles));
                    low = _mm512_dpbusd_epi32(low, first, splat_bytes(x.four(4 * word)));
                    high = _mm512_dpbusd_epi32(high, second, splat_bytes(x.four(4 * word + 16)));
                }
                let total = _mm512_cvtepi32_ps(_mm512_add_epi32(low, high));
                sums[column] = _mm512_fmadd_ps(_mm512_mul_ps(scales, _mm512_set1_ps(x.scale)), total, sums[column]);
            }
        }
        for (column, sums) in sums.into_iter().enumerate().take(x.count()) {
            store(sums, out.row(column)[first..].first_chunk_mut().expect("a unit lies inside the tile"));
        }
    }
}

/// Block `at` of sixteen rows of Q4_0: word j of every row in register j, and their scales.
#[inline]
#[target_feature(enable = "avx512f,avx2,f16c")]
fn turned_q4_0(rows: &[u8], row_bytes: usize, at: usize) -> ([__m512i; 4], __m512) {
    let from = at * q4_0::BYTES;
    assert!(rows.len() == ROWS * row_bytes && from + q4_0::BYTES <= row_bytes, "the block lies in every row");
    let offsets = _mm512_mullo_epi32(
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
        _mm512_set1_epi32(i32::try_from(row_bytes).expect("a row is far shorter")),
    );
    // SAFETY: the assertion keeps eighteen bytes of each of the sixteen rows in reach, of which the first four are
    // gathered and the last sixteen loaded.
    let (scales, [a, b, c, d]) = unsafe {
        let block = rows.as_ptr().add(from);
        let quants = |row: usize| _mm_loadu_si128(block.add(row * row_bytes + q4_0::QUANTS).cast());
        let every_fourth = |row: usize| {
            let two = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(quants(row)), quants(row + 4));
            let three = _mm512_inserti32x4::<2>(_mm512_castsi256_si512(two), quants(row + 8));
            _mm512_inserti32x4::<3>(three, quants(row + 12))
        };
        let scales = _mm512_i32gather_epi32::<1>(offsets, block.cast());
        (scales, [every_fourth(0), every_fourth(1), every_fourth(2), every_fourth(3)])
    };
    let (low, low_too) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
    let (high, high_too) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
    let words = [
        _mm512_unpacklo_epi64(low, low_too),
        _mm512_unpackhi_epi64(low, low_too),
        _mm512_unpacklo_epi64(high, high_too),
        _mm512_unpackhi_epi64(high, high_too),
    ];
    (words, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(scales)))
}
