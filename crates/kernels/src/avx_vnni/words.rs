//! The same word of eight weight rows in one register: as for AVX2, but with products that are summed as they are made.

use std::arch::x86_64::*;

pub(super) use crate::avx2::words::{
    COLUMNS_TOGETHER, FEW, Floats, GROUPS, Products, TOGETHER, VECTORS, VECTORS_TOGETHER, Words, add_product, and,
    few_together, halves, lower_halves, multiply_floats, or, per_vector, shift_left, shift_right, splat, splat_bytes,
    splat_float, splat_pair, store_sums, subtract, subtract_product, upper_bytes_signed, word,
};
use crate::avx512::words::is_narrow;
pub(super) use crate::avx512::words::{SIGNED_OFFSET, summed};

/// A small number per lane in the form that [`add_scaled`] multiplies with: just so.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn factor(lanes: Words) -> Words {
    lanes
}

/// products + unsigned quants × four bytes of x.
#[inline]
#[target_feature(enable = "avxvnni,avx2")]
pub(super) fn dot(products: Products, quants: Words, x: Words) -> Products {
    _mm256_dpbusd_avx_epi32(products, quants, x)
}

/// Signed bytes in the form that [`dot_signed`] takes: the multiply wants unsigned ones, so 128 is added.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn signed_quants(words: Words) -> Words {
    _mm256_xor_si256(words, _mm256_set1_epi8(-128))
}

#[inline]
#[target_feature(enable = "avxvnni,avx2")]
pub(super) fn dot_signed(sums: Words, quants: Words, x: Words) -> Words {
    dot(sums, quants, x)
}

/// What products start from where `offset` is to be subtracted from their sum.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn start(offset: i32) -> Products {
    splat(-offset)
}

/// The sum of each lane's products less the offset they started with.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn sums_of(products: Products, _offset: i32) -> Words {
    products
}

/// totals + products × factors, where quants go up to `greatest`.
#[inline]
#[target_feature(enable = "avxvnni,avx2")]
pub(super) fn add_scaled(greatest: i32, totals: Words, products: Products, factors: Words) -> Words {
    if is_narrow(greatest, 4) {
        // The sum is a number in the lower half of its lane, and the factor's upper half is empty.
        add_pairs(totals, products, factors)
    } else {
        _mm256_add_epi32(totals, _mm256_mullo_epi32(products, factors))
    }
}

/// totals + both 16-bit halves of `factors` × those of `pair`.
#[inline]
#[target_feature(enable = "avxvnni,avx2")]
pub(super) fn add_pairs(totals: Words, factors: Words, pair: Words) -> Words {
    _mm256_dpwssd_avx_epi32(totals, factors, pair)
}
