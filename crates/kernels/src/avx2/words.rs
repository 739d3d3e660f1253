//! The same word of eight weight rows in one register, and what kernels do with it.

use std::arch::x86_64::*;

use super::lanes::load;
use crate::layout::{GROUP_HALF, GROUP_ROWS, GROUP_WORD};
use crate::pool::TileMut;
use crate::vector::store::store_sums;

/// Groups of sixteen rows that are multiplied together.
pub(crate) const GROUPS: usize = 1;
/// Registers that hold the same word of all rows.
pub(crate) const VECTORS: usize = 2;
/// Columns that are multiplied together, as many as there are registers for.
pub(crate) const TOGETHER: usize = 2;
/// The same for blocks of 32, of which one register of rows is multiplied after the other: what is broadcast from memory
/// then needs no register of its own.
pub(crate) const COLUMNS_TOGETHER: usize = 4;
pub(crate) const VECTORS_TOGETHER: usize = 1;
/// Up to this many columns, quants of blocks of 256 are unpacked again for every set of them instead of being kept.
pub(crate) const FEW: usize = 8;
/// What [`signed_quants`] adds to every quant.
pub(crate) const SIGNED_OFFSET: i32 = 0;

/// How many of a few columns are multiplied together.
pub(crate) const fn few_together(columns: usize) -> usize {
    if columns < TOGETHER { columns } else { TOGETHER }
}

/// One of something for each of the registers. Written out, because the compiler calls what it is given inside
/// `std::array::from_fn`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn per_vector<T>(make: impl Fn(usize) -> T) -> [T; VECTORS] {
    [make(0), make(1)]
}

pub(crate) type Words = __m256i;
pub(crate) type Floats = __m256;

/// Sums of two products each, kept as 16-bit numbers.
pub(crate) type Products = __m256i;

/// Lanes of a register.
const LANES: usize = 8;

#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn word<const W: usize>(groups: &[&[[u8; GROUP_WORD]; W]; GROUPS], word: usize, vector: usize) -> Words {
    load(&groups[0][word].as_chunks::<32>().0[vector])
}

/// The half-precision numbers of all rows of a register.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn halves(groups: &[&[u8; GROUP_HALF]; GROUPS], vector: usize) -> Floats {
    _mm256_cvtph_ps(super::lanes::load16(&groups[0].as_chunks::<16>().0[vector]))
}

/// The half-precision numbers in the lower halves of the lanes.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn lower_halves(words: Words) -> Floats {
    let lower = _mm256_and_si256(words, _mm256_set1_epi32(0xffff));
    _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(lower), _mm256_extracti128_si256::<1>(lower)))
}

#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn splat(value: i32) -> Words {
    _mm256_set1_epi32(value)
}

/// Four bytes in every lane.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn splat_bytes(bytes: &[i8; 4]) -> Words {
    // SAFETY: the reference guarantees four readable bytes. Written like this it is one instruction; the compiler does
    // not always see that four bytes side by side are a word.
    _mm256_set1_epi32(unsafe { bytes.as_ptr().cast::<i32>().read_unaligned() })
}

/// Two 16-bit numbers in every lane.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn splat_pair(pair: &[i16; 2]) -> Words {
    // SAFETY: the reference guarantees four readable bytes.
    _mm256_set1_epi32(unsafe { pair.as_ptr().cast::<i32>().read_unaligned() })
}

#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn and(a: Words, b: Words) -> Words {
    _mm256_and_si256(a, b)
}

#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn or(a: Words, b: Words) -> Words {
    _mm256_or_si256(a, b)
}

#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn subtract(a: Words, b: Words) -> Words {
    _mm256_sub_epi32(a, b)
}

#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn shift_left(words: Words, bits: usize) -> Words {
    _mm256_sllv_epi32(words, splat(bits as i32))
}

#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn shift_right(words: Words, bits: usize) -> Words {
    _mm256_srlv_epi32(words, splat(bits as i32))
}

/// The uppermost bytes of the lanes as signed numbers.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn upper_bytes_signed(words: Words) -> Words {
    _mm256_srai_epi32::<24>(words)
}

/// A small number per lane in the form that [`add_scaled`] multiplies with: in both halves of the lane.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn factor(lanes: Words) -> Words {
    _mm256_blend_epi16::<0b1010_1010>(lanes, _mm256_slli_epi32::<16>(lanes))
}

/// How many words' products of quants up to `greatest` are summed before they are scaled, in a group of `words`:
/// as many as fit sixteen bits.
pub(crate) const fn summed(greatest: i32, words: usize) -> usize {
    let mut summed = words;
    while summed as i32 * 2 * greatest * 127 > i16::MAX as i32 {
        summed /= 2;
    }
    summed
}

/// products + unsigned quants × four bytes of x.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn dot(products: Products, quants: Words, x: Words) -> Products {
    _mm256_add_epi16(products, _mm256_maddubs_epi16(quants, x))
}

/// Signed bytes in the form that [`dot_signed`] takes: just so.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn signed_quants(words: Words) -> Words {
    words
}

/// The multiply takes unsigned × signed, so the sign of the weight moves to x.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn dot_signed(sums: Words, quants: Words, x: Words) -> Words {
    let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(quants), _mm256_sign_epi8(x, quants));
    _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
}

/// What products start from: sixteen bits have no room for an offset.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn start(_offset: i32) -> Products {
    _mm256_setzero_si256()
}

/// The sum of each lane's products less an offset.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn sums_of(products: Products, offset: i32) -> Words {
    let sums = _mm256_madd_epi16(products, _mm256_set1_epi16(1));
    _mm256_sub_epi32(sums, _mm256_set1_epi32(offset))
}

/// totals + products × factors, whatever the greatest quant.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn add_scaled(_greatest: i32, totals: Words, products: Products, factors: Words) -> Words {
    _mm256_add_epi32(totals, _mm256_madd_epi16(products, factors))
}

/// totals + both 16-bit halves of `factors` × those of `pair`.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn add_pairs(totals: Words, factors: Words, pair: Words) -> Words {
    _mm256_add_epi32(totals, _mm256_madd_epi16(factors, pair))
}

#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn splat_float(value: f32) -> Floats {
    _mm256_set1_ps(value)
}

#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn multiply_floats(a: Floats, b: Floats) -> Floats {
    _mm256_mul_ps(a, b)
}

/// sum + a × integers, rounded once.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(crate) fn add_product(sum: Floats, a: Floats, integers: Words) -> Floats {
    _mm256_fmadd_ps(a, _mm256_cvtepi32_ps(integers), sum)
}

/// sum − a × integers, rounded once.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(crate) fn subtract_product(sum: Floats, a: Floats, integers: Words) -> Floats {
    _mm256_fnmadd_ps(a, _mm256_cvtepi32_ps(integers), sum)
}

#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn store(values: Floats, out: &mut [f32; LANES]) {
    // SAFETY: the reference guarantees eight writable floats.
    unsafe { _mm256_storeu_ps(out.as_mut_ptr(), values) }
}

store_sums!("avx2,fma,f16c");
