//! Q8_0: integer sums of one block.

use std::arch::x86_64::*;

use super::interleaved32;
use super::lanes::{four_halves, integer_sums4, load, read_ahead, store4};
use crate::activations::{Int8Block32, Rows};
use crate::blocks::q8_0;
use crate::ops::WeightRows;
use crate::pool::TileMut;
use crate::vector::{field, pair};

#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn multiply_q8_0(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    match x.count() {
        1 => multiply_columns::<1>(weights, x, out),
        2 => multiply_columns::<2>(weights, x, out),
        3 => multiply_columns::<3>(weights, x, out),
        _ => interleaved32::turned_q8_0(weights, x, out),
    }
}

/// Multiplies weight rows, four at a time, with `N` columns; a lane of the float sums belongs to a row.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn multiply_columns<const N: usize>(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    let length = x.length();
    let mut columns = [&x.row(0)[..length]; N];
    columns.iter_mut().enumerate().for_each(|(column, blocks)| *blocks = &x.row(column)[..length]);
    for four in 0..weights.fours() {
        let [a, b, c, d] = weights.four(four).map(|row| &row.as_chunks::<{ q8_0::BYTES }>().0[..length]);
        let mut sums = [_mm_setzero_ps(); N];
        for at in 0..length {
            let (a, b, c, d) = (&a[at], &b[at], &c[at], &d[at]);
            read_ahead(weights.ahead, [a, b, c, d]);
            let quants = |block| load::<[u8; 32]>(field(block, q8_0::QUANTS));
            let quants = [quants(a), quants(b), quants(c), quants(d)];
            let scales = four_halves(pair(a, 0), pair(b, 0), pair(c, 0), pair(d, 0));
            for column in 0..N {
                let x = &columns[column][at];
                let products = |row: usize| products(quants[row], load(&x.values));
                let totals = integer_sums4(products(0), products(1), products(2), products(3));
                let scales = _mm_mul_ps(scales, _mm_set1_ps(x.scale));
                sums[column] = _mm_fmadd_ps(scales, _mm_cvtepi32_ps(totals), sums[column]);
            }
        }
        for column in 0..N {
            out.put4(column, four, store4(sums[column]));
        }
    }
}

/// Eight integers whose sum is weights · x.
#[inline]
#[target_feature(enable = "avx2")]
fn products(quants: __m256i, x: __m256i) -> __m256i {
    // The multiply takes unsigned × signed, so the sign of the weight moves to x.
    let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(quants), _mm256_sign_epi8(x, quants));
    _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))
}
