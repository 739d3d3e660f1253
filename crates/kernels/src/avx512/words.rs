//! The same word of sixteen weight rows in one register, and what kernels do with it.

use std::arch::x86_64::*;

use crate::avx2;
use crate::layout::{GROUP_HALF, GROUP_ROWS, GROUP_WORD};
use crate::pool::TileMut;
use crate::vector::field;
use crate::vector::store::store_sums;

/// Lanes of a register.
const LANES: usize = 16;

/// Groups of sixteen rows that are multiplied together: two, because an operand that is broadcast from memory then
/// serves two multiplications.
pub(super) const GROUPS: usize = 2;
/// Registers that hold the same word of all rows.
pub(super) const VECTORS: usize = 2;
/// Columns that are multiplied together, as many as there are registers for.
pub(super) const TOGETHER: usize = 6;
/// The same for blocks of 32, of which one register of rows is multiplied after the other: what is broadcast from memory
/// then needs no register of its own.
pub(super) const COLUMNS_TOGETHER: usize = 8;
pub(super) const VECTORS_TOGETHER: usize = 1;
/// Up to this many columns, quants of blocks of 256 are unpacked again for every set of them instead of being kept.
pub(super) const FEW: usize = 24;
/// What [`signed_quants`] adds to every quant.
pub(crate) const SIGNED_OFFSET: i32 = 128;

/// How many of a few columns are multiplied together. More would fit into vectors, but not their addresses.
pub(super) const fn few_together(columns: usize) -> usize {
    if columns > 6 { 4 } else { columns }
}

/// One of something for each of the registers. Written out, because the compiler calls what it is given inside
/// `std::array::from_fn`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn per_vector<T>(make: impl Fn(usize) -> T) -> [T; VECTORS] {
    [make(0), make(1)]
}

pub(super) type Words = __m512i;
pub(super) type Floats = __m512;

/// Sums of four products each, kept as 32-bit numbers.
pub(super) type Products = __m512i;

/// A word of sixteen rows.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn load_word(word: &[u8; GROUP_WORD]) -> Words {
    // SAFETY: the reference guarantees sixty-four readable bytes.
    unsafe { _mm512_loadu_si512(word.as_ptr().cast()) }
}

/// The half-precision numbers of sixteen rows.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn load_halves(halves: &[u8; GROUP_HALF]) -> Floats {
    // SAFETY: the reference guarantees thirty-two readable bytes.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(halves.as_ptr().cast()) })
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn word<const W: usize>(groups: &[&[[u8; GROUP_WORD]; W]; GROUPS], word: usize, vector: usize) -> Words {
    load_word(&groups[vector][word])
}

/// The half-precision numbers of all rows of a register.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn halves(groups: &[&[u8; GROUP_HALF]; GROUPS], vector: usize) -> Floats {
    load_halves(groups[vector])
}

/// The half-precision numbers in the lower halves of the lanes.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn lower_halves(words: Words) -> Floats {
    _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words))
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn splat(value: i32) -> Words {
    _mm512_set1_epi32(value)
}

/// Four bytes in every lane.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn splat_bytes(bytes: &[i8; 4]) -> Words {
    // SAFETY: the reference guarantees four readable bytes. Written like this it is one instruction; the compiler does
    // not always see that four bytes side by side are a word.
    _mm512_set1_epi32(unsafe { bytes.as_ptr().cast::<i32>().read_unaligned() })
}

/// Two 16-bit numbers in every lane.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn splat_pair(pair: &[i16; 2]) -> Words {
    // SAFETY: the reference guarantees four readable bytes.
    _mm512_set1_epi32(unsafe { pair.as_ptr().cast::<i32>().read_unaligned() })
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn and(a: Words, b: Words) -> Words {
    _mm512_and_si512(a, b)
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn or(a: Words, b: Words) -> Words {
    _mm512_or_si512(a, b)
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn subtract(a: Words, b: Words) -> Words {
    _mm512_sub_epi32(a, b)
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn shift_left(words: Words, bits: usize) -> Words {
    _mm512_sllv_epi32(words, splat(bits as i32))
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn shift_right(words: Words, bits: usize) -> Words {
    _mm512_srlv_epi32(words, splat(bits as i32))
}

/// The uppermost bytes of the lanes as signed numbers.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn upper_bytes_signed(words: Words) -> Words {
    _mm512_srai_epi32::<24>(words)
}

/// A small number per lane in the form that [`add_scaled`] multiplies with: just so.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn factor(lanes: Words) -> Words {
    lanes
}

/// How many words' products of quants up to `greatest` are summed before they are scaled, in a group of `words`.
pub(crate) const fn summed(greatest: i32, words: usize) -> usize {
    if is_narrow(greatest, 4) { 4 } else { words }
}

pub(crate) const fn is_narrow(greatest: i32, words: i32) -> bool {
    words * 4 * greatest * 127 <= i16::MAX as i32
}

/// products + unsigned quants × four bytes of x.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) fn dot(products: Products, quants: Words, x: Words) -> Products {
    _mm512_dpbusd_epi32(products, quants, x)
}

/// Signed bytes in the form that [`dot_signed`] takes: the multiply wants unsigned ones, so 128 is added.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn signed_quants(words: Words) -> Words {
    _mm512_xor_si512(words, _mm512_set1_epi32(0x8080_8080_u32 as i32))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) fn dot_signed(sums: Words, quants: Words, x: Words) -> Words {
    _mm512_dpbusd_epi32(sums, quants, x)
}

/// What products start from where `offset` is to be subtracted from their sum.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn start(offset: i32) -> Products {
    _mm512_set1_epi32(-offset)
}

/// The sum of each lane's products less the offset they started with.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn sums_of(products: Products, _offset: i32) -> Words {
    products
}

/// totals + products × factors, where quants go up to `greatest`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) fn add_scaled(greatest: i32, totals: Words, products: Products, factors: Words) -> Words {
    if is_narrow(greatest, 4) {
        // The sum is a number in the lower half of its lane, and the factor's upper half is empty.
        add_pairs(totals, products, factors)
    } else {
        _mm512_add_epi32(totals, _mm512_mullo_epi32(products, factors))
    }
}

/// totals + both 16-bit halves of `factors` × those of `pair`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) fn add_pairs(totals: Words, factors: Words, pair: Words) -> Words {
    let mut totals = totals;
    // SAFETY: an instruction that this function's features promise, on registers alone. The compiler makes a multiply
    // and an addition of the intrinsic to shorten a chain that is none here: columns alternate.
    unsafe {
        std::arch::asm!(
            "vpdpwssd {totals}, {factors}, {pair}",
            totals = inout(zmm_reg) totals,
            factors = in(zmm_reg) factors,
            pair = in(zmm_reg) pair,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    totals
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn splat_float(value: f32) -> Floats {
    _mm512_set1_ps(value)
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn multiply_floats(a: Floats, b: Floats) -> Floats {
    _mm512_mul_ps(a, b)
}

/// sum + a × integers, rounded once.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn add_product(sum: Floats, a: Floats, integers: Words) -> Floats {
    _mm512_fmadd_ps(a, _mm512_cvtepi32_ps(integers), sum)
}

/// sum − a × integers, rounded once.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn subtract_product(sum: Floats, a: Floats, integers: Words) -> Floats {
    _mm512_fnmadd_ps(a, _mm512_cvtepi32_ps(integers), sum)
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn store(values: Floats, out: &mut [f32; LANES]) {
    // SAFETY: the reference guarantees sixteen writable floats.
    unsafe { _mm512_storeu_ps(out.as_mut_ptr(), values) }
}

store_sums!("avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c");

/// Interleaves as many words as `out` takes, a multiple of four, from byte `at` on of sixteen blocks.
#[inline]
#[target_feature(enable = "avx512f,avx2")]
pub(super) fn turn<const BYTES: usize>(blocks: &[&[u8; BYTES]; GROUP_ROWS], at: usize, out: &mut [[u8; GROUP_WORD]]) {
    let (sixteens, rest) = out.as_chunks_mut::<16>();
    for (part, words) in sixteens.iter_mut().enumerate() {
        for (out, word) in words.iter_mut().zip(turned(blocks, at + GROUP_WORD * part)) {
            // SAFETY: the reference guarantees sixty-four writable bytes.
            unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), word) };
        }
    }
    avx2::turn::turn(blocks, at + GROUP_WORD * sixteens.len(), rest);
}

/// Sixteen words of each of sixteen blocks, turned: register j holds word j of every block.
#[inline]
#[target_feature(enable = "avx512f")]
fn turned<const BYTES: usize>(blocks: &[&[u8; BYTES]; GROUP_ROWS], at: usize) -> [__m512i; 16] {
    let mut rows = [_mm512_setzero_si512(); 16];
    for (row, block) in rows.iter_mut().zip(blocks) {
        let bytes: &[u8; GROUP_WORD] = field(block, at);
        // SAFETY: the reference guarantees sixty-four readable bytes.
        *row = unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) };
    }
    // Words of two rows side by side, then of four, then whole quarters of registers change places.
    let mut pairs = rows;
    for at in (0..16).step_by(2) {
        pairs[at] = _mm512_unpacklo_epi32(rows[at], rows[at + 1]);
        pairs[at + 1] = _mm512_unpackhi_epi32(rows[at], rows[at + 1]);
    }
    let mut fours = rows;
    for at in (0..16).step_by(4) {
        fours[at] = _mm512_unpacklo_epi64(pairs[at], pairs[at + 2]);
        fours[at + 1] = _mm512_unpackhi_epi64(pairs[at], pairs[at + 2]);
        fours[at + 2] = _mm512_unpacklo_epi64(pairs[at + 1], pairs[at + 3]);
        fours[at + 3] = _mm512_unpackhi_epi64(pairs[at + 1], pairs[at + 3]);
    }
    let mut out = rows;
    for word in 0..4 {
        let [a, b, c, d] = [fours[word], fours[word + 4], fours[word + 8], fours[word + 12]];
        let (low, high) = (_mm512_shuffle_i32x4::<0x44>(a, b), _mm512_shuffle_i32x4::<0x44>(c, d));
        out[word] = _mm512_shuffle_i32x4::<0x88>(low, high);
        out[word + 4] = _mm512_shuffle_i32x4::<0xdd>(low, high);
        let (low, high) = (_mm512_shuffle_i32x4::<0xee>(a, b), _mm512_shuffle_i32x4::<0xee>(c, d));
        out[word + 8] = _mm512_shuffle_i32x4::<0x88>(low, high);
        out[word + 12] = _mm512_shuffle_i32x4::<0xdd>(low, high);
    }
    out
}
