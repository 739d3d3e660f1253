//! Sums of products of bytes, the step in which the instruction sets differ.

use std::arch::x86_64::*;

/// sum + a × b, in fours of unsigned a and signed b. Neighbouring products must fit sixteen bits together.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn add_fours(sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
    add_pairs(sum, _mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1))
}

/// The same for four registers whose a are at most 31: eight such products fit sixteen bits together.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn add_small_fours(sum: __m256i, a: &[__m256i; 4], b: [__m256i; 4]) -> __m256i {
    add_pairs(sum, small_pairs(a, b), _mm256_set1_epi16(1))
}

/// sum + pairs × factors, in pairs of 16-bit numbers.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn add_pairs(sum: __m256i, pairs: __m256i, factors: __m256i) -> __m256i {
    _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, factors))
}

/// sum + a × b × factors over four registers of a that are at most `largest`; factors are 16-bit numbers, in pairs.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn add_scaled(
    sum: __m256i,
    largest: u8,
    (a, b): (&[__m256i; 4], [__m256i; 4]),
    factors: __m256i,
) -> __m256i {
    if largest <= 31 {
        return add_pairs(sum, small_pairs(a, b), factors);
    }
    let pairs = |at: usize| _mm256_maddubs_epi16(a[at], b[at]);
    if largest <= 64 {
        let first = add_pairs(sum, _mm256_add_epi16(pairs(0), pairs(1)), factors);
        return add_pairs(first, _mm256_add_epi16(pairs(2), pairs(3)), factors);
    }
    let first = add_pairs(add_pairs(sum, pairs(0), factors), pairs(1), factors);
    add_pairs(add_pairs(first, pairs(2), factors), pairs(3), factors)
}

#[inline]
#[target_feature(enable = "avx2")]
fn small_pairs(a: &[__m256i; 4], b: [__m256i; 4]) -> __m256i {
    let first = _mm256_add_epi16(_mm256_maddubs_epi16(a[0], b[0]), _mm256_maddubs_epi16(a[1], b[1]));
    let second = _mm256_add_epi16(_mm256_maddubs_epi16(a[2], b[2]), _mm256_maddubs_epi16(a[3], b[3]));
    _mm256_add_epi16(first, second)
}

/// Lower and upper nibbles of two blocks of 32, half a register each, times as many bytes: sums of four products.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn nibble_products(low: (__m256i, __m256i), high: (__m256i, __m256i)) -> __m256i {
    _mm256_add_epi16(_mm256_maddubs_epi16(low.0, low.1), _mm256_maddubs_epi16(high.0, high.1))
}

/// The sums of the halves of four such registers: those of the lower halves in the lower half.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn lane_sums4(a: __m256i, b: __m256i, c: __m256i, d: __m256i) -> __m256i {
    // Sixteen products of a nibble and a byte fit sixteen bits.
    let sixteens = _mm256_hadd_epi16(_mm256_hadd_epi16(a, b), _mm256_hadd_epi16(c, d));
    _mm256_madd_epi16(sixteens, _mm256_set1_epi16(1))
}
