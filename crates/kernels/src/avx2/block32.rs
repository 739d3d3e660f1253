//! Q8_0: integer sums of one block.

use std::arch::x86_64::*;

use super::interleaved32;
use super::lanes::{four_halves, integer_sums4, load, read_ahead, store4};
use crate::activations::{Int8Block32, Rows};
use crate::blocks::q8_0;
use crate::ops::WeightRows;
use crate::pool::TileMut;
use crate::vector::{LEAST_TURNED, field, pair};

#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn multiply_q8_0(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    if x.count() >= LEAST_TURNED {
        return interleaved32::turned_q8_0(weights, x, out);
    }
    for four in 0..weights.fours() {
        let [a, b, c, d] = weights.four(four).map(|row| row.as_chunks().0);
        for column in 0..x.count() {
            let mut sums = _mm_setzero_ps();
            for ((((x, a), b), c), d) in x.row(column).iter().zip(a).zip(b).zip(c).zip(d) {
                read_ahead(weights.ahead, [a, b, c, d]);
                let values = load(&x.values);
                let totals =
                    integer_sums4(products(a, values), products(b, values), products(c, values), products(d, values));
                let scales = four_halves(pair(a, 0), pair(b, 0), pair(c, 0), pair(d, 0));
                sums = _mm_fmadd_ps(_mm_mul_ps(scales, _mm_set1_ps(x.scale)), _mm_cvtepi32_ps(totals), sums);
            }
            out.put4(column, four, store4(sums));
        }
    }
}

/// Eight integers whose sum is weights · x.
#[inline]
#[target_feature(enable = "avx2")]
fn products(block: &[u8; q8_0::BYTES], x: __m256i) -> __m256i {
    let quants = load::<[u8; 32]>(field(block, q8_0::QUANTS));
    // The multiply takes unsigned × signed, so the sign of the weight moves to x.
    let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(quants), _mm256_sign_epi8(x, quants));
    _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))
}
