//! The same word of four weight rows in one register, and what kernels do with it.

use std::arch::aarch64::*;

use super::lanes;
use crate::layout::{GROUP_HALF, GROUP_ROWS, GROUP_WORD};
use crate::pool::TileMut;
use crate::vector::field;
use crate::vector::store::store_sums;

/// Groups of sixteen rows that are multiplied together.
pub(super) const GROUPS: usize = 1;
/// Registers that hold the same word of all rows.
pub(super) const VECTORS: usize = 4;
/// Columns that are multiplied together, as many as there are registers for.
pub(super) const TOGETHER: usize = 3;
/// The same for blocks of 32, and how many registers of rows are multiplied with them.
pub(super) const COLUMNS_TOGETHER: usize = 3;
pub(super) const VECTORS_TOGETHER: usize = 4;
/// Up to this many columns, quants of blocks of 256 are unpacked again for every set of them instead of being kept.
pub(super) const FEW: usize = 8;
/// What [`signed_quants`] adds to every quant.
pub(super) const SIGNED_OFFSET: i32 = 0;

/// How many of a few columns are multiplied together.
pub(super) const fn few_together(columns: usize) -> usize {
    if columns == 1 { 1 } else { 2 }
}

/// One of something for each of the registers.
#[inline]
#[target_feature(enable = "neon,dotprod")]
pub(super) fn per_vector<T>(make: impl Fn(usize) -> T) -> [T; VECTORS] {
    [make(0), make(1), make(2), make(3)]
}

pub(super) type Words = int32x4_t;
pub(super) type Floats = float32x4_t;

/// Sums of four products each, kept as 32-bit numbers.
pub(super) type Products = int32x4_t;

/// Lanes of a register.
const LANES: usize = 4;

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn word<const W: usize>(groups: &[&[[u8; GROUP_WORD]; W]; GROUPS], word: usize, vector: usize) -> Words {
    vreinterpretq_s32_u8(lanes::load_bytes(&groups[0][word].as_chunks().0[vector]))
}

/// The half-precision numbers of all rows of a register.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn halves(groups: &[&[u8; GROUP_HALF]; GROUPS], vector: usize) -> Floats {
    lanes::widen(vcreate_u16(u64::from_le_bytes(groups[0].as_chunks().0[vector])))
}

/// The half-precision numbers in the lower halves of the lanes.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn lower_halves(words: Words) -> Floats {
    lanes::widen(vmovn_u32(vreinterpretq_u32_s32(words)))
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn splat(value: i32) -> Words {
    vdupq_n_s32(value)
}

/// Four bytes in every lane.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn splat_bytes(bytes: &[i8; 4]) -> Words {
    // SAFETY: the reference guarantees four readable bytes. Written like this it is one instruction; the compiler does
    // not always see that four bytes side by side are a word.
    vdupq_n_s32(unsafe { bytes.as_ptr().cast::<i32>().read_unaligned() })
}

/// Two 16-bit numbers in every lane.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn splat_pair(pair: &[i16; 2]) -> Words {
    // SAFETY: the reference guarantees four readable bytes.
    vdupq_n_s32(unsafe { pair.as_ptr().cast::<i32>().read_unaligned() })
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn and(a: Words, b: Words) -> Words {
    vandq_s32(a, b)
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn or(a: Words, b: Words) -> Words {
    vorrq_s32(a, b)
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn subtract(a: Words, b: Words) -> Words {
    vsubq_s32(a, b)
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn shift_left(words: Words, bits: usize) -> Words {
    vshlq_s32(words, splat(bits as i32))
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn shift_right(words: Words, bits: usize) -> Words {
    vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(words), splat(-(bits as i32))))
}

/// The uppermost bytes of the lanes as signed numbers.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn upper_bytes_signed(words: Words) -> Words {
    vshrq_n_s32::<24>(words)
}

/// A small number per lane in the form that [`add_scaled`] multiplies with: just so.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn factor(lanes: Words) -> Words {
    lanes
}

/// How many words' products are summed before they are scaled: all of a group, whatever the greatest quant.
pub(super) const fn summed(_greatest: i32, words: usize) -> usize {
    words
}

/// products + quants × four bytes of x.
#[inline]
#[target_feature(enable = "neon,dotprod")]
pub(super) fn dot(products: Products, quants: Words, x: Words) -> Products {
    lanes::dot(products, vreinterpretq_s8_s32(quants), vreinterpretq_s8_s32(x))
}

/// Signed bytes in the form that [`dot_signed`] takes: just so.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn signed_quants(words: Words) -> Words {
    words
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
pub(super) fn dot_signed(sums: Words, quants: Words, x: Words) -> Words {
    dot(sums, quants, x)
}

/// What products start from where `offset` is to be subtracted from their sum.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn start(offset: i32) -> Products {
    splat(-offset)
}

/// The sum of each lane's products less the offset they started with.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn sums_of(products: Products, _offset: i32) -> Words {
    products
}

/// totals + products × factors.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn add_scaled(_greatest: i32, totals: Words, products: Products, factors: Words) -> Words {
    vmlaq_s32(totals, products, factors)
}

/// totals + both 16-bit halves of `factors` × those of `pair`.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn add_pairs(totals: Words, factors: Words, pair: Words) -> Words {
    let (factors, pair) = (vreinterpretq_s16_s32(factors), vreinterpretq_s16_s32(pair));
    let low = vmull_s16(vget_low_s16(factors), vget_low_s16(pair));
    vaddq_s32(totals, vpaddq_s32(low, vmull_high_s16(factors, pair)))
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn splat_float(value: f32) -> Floats {
    vdupq_n_f32(value)
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn multiply_floats(a: Floats, b: Floats) -> Floats {
    vmulq_f32(a, b)
}

/// sum + a × integers, rounded once.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn add_product(sum: Floats, a: Floats, integers: Words) -> Floats {
    vfmaq_f32(sum, a, vcvtq_f32_s32(integers))
}

/// sum − a × integers, rounded once.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn subtract_product(sum: Floats, a: Floats, integers: Words) -> Floats {
    vfmsq_f32(sum, a, vcvtq_f32_s32(integers))
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn store(values: Floats, out: &mut [f32; LANES]) {
    *out = lanes::store4(values);
}

store_sums!("neon,dotprod");

/// Interleaves as many words as `out` takes, a multiple of four, from byte `at` on of sixteen blocks.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn turn<const BYTES: usize>(blocks: &[&[u8; BYTES]; GROUP_ROWS], at: usize, out: &mut [[u8; GROUP_WORD]]) {
    for (part, words) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        for (vector, blocks) in blocks.as_chunks::<4>().0.iter().enumerate() {
            for (out, turned) in words.iter_mut().zip(turned(blocks, at + 16 * part)) {
                let out: &mut [u8; 16] = &mut out.as_chunks_mut().0[vector];
                // SAFETY: the reference guarantees sixteen writable bytes.
                unsafe { vst1q_u8(out.as_mut_ptr(), turned) };
            }
        }
    }
}

/// Four words of each of four blocks, turned: register j holds word j of every block.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn turned<const BYTES: usize>(blocks: &[&[u8; BYTES]; 4], at: usize) -> [uint8x16_t; 4] {
    let four = |row: usize| vreinterpretq_u32_u8(lanes::load_bytes(field(blocks[row], at)));
    let (a, b, c, d) = (four(0), four(1), four(2), four(3));
    let (low_ab, high_ab) = (vzip1q_u32(a, b), vzip2q_u32(a, b));
    let (low_cd, high_cd) = (vzip1q_u32(c, d), vzip2q_u32(c, d));
    let first = |ab, cd| vreinterpretq_u8_u64(vzip1q_u64(vreinterpretq_u64_u32(ab), vreinterpretq_u64_u32(cd)));
    let second = |ab, cd| vreinterpretq_u8_u64(vzip2q_u64(vreinterpretq_u64_u32(ab), vreinterpretq_u64_u32(cd)));
    [first(low_ab, low_cd), second(low_ab, low_cd), first(high_ab, high_cd), second(high_ab, high_cd)]
}
