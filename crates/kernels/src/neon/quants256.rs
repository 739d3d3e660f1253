//! How blocks of four rows of Q4_K, Q5_K and Q6_K become quants, integer scales and floats in registers.

use std::arch::aarch64::*;

use super::lanes::{Floats4, dot_four, four_halves, load_bytes, load_words, upper_nibbles, widen};
use super::words::turned;
use crate::activations::Int8Block256;
use crate::blocks::{q4_k, q5_k, q6_k};
use crate::vector::field;

/// A format of unsigned quants under integer scales.
pub(super) trait Quants<const BYTES: usize> {
    type Head: Head<BYTES>;
    /// How many times sixteen quants share a scale.
    const SIXTEENS: usize;

    /// Which sixteen numbers of a block the register `at` of a quarter holds.
    fn sixteen(quarter: usize, at: usize) -> usize;

    /// A quarter of the quants of a block; groups that share a scale lie side by side.
    ///
    /// # Safety
    /// The CPU must have NEON.
    unsafe fn quants<const QUARTER: usize>(block: &[u8; BYTES]) -> [int8x16_t; 4];
}

/// What a block of four rows has beside quants.
pub(super) trait Head<const BYTES: usize> {
    /// # Safety
    /// The CPU must have NEON.
    unsafe fn new(rows: [&[u8; BYTES]; 4]) -> Self;

    /// The scales of one group, one lane per row.
    ///
    /// # Safety
    /// The CPU must have NEON.
    unsafe fn scales(&self, group: usize) -> int32x4_t;

    /// Adds a block's Σ scale × quant × x.
    ///
    /// # Safety
    /// The CPU must have NEON with dot products.
    unsafe fn add(&self, sums: Floats4, total: int32x4_t, x: &Int8Block256) -> Floats4;
}

pub(super) struct Q4K;
pub(super) struct Q5K;
pub(super) struct Q6K;

/// What a block of four rows of Q4_K or Q5_K has beside quants: four bytes of each row in a register.
pub(super) struct WithMinima {
    scales: [uint8x16_t; 2],
    minima: [uint8x16_t; 2],
    /// The factors of both.
    of_scales: Floats4,
    of_minima: Floats4,
}

impl<const BYTES: usize> Head<BYTES> for WithMinima {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn new(rows: [&[u8; BYTES]; 4]) -> WithMinima {
        // The two factors; the first four scales and above them two bits each of the last four; the same of the minima;
        // the other bits of the last four scales and, above them, minima.
        let [factors, scales, minima, last] = turned(&rows, 0);
        let (factors, six_bits) = (vreinterpretq_u32_u8(factors), vdupq_n_u8(63));
        let last_scales = vsliq_n_u8::<4>(last, vshrq_n_u8::<6>(scales));
        let last_minima = vsliq_n_u8::<4>(vshrq_n_u8::<4>(last), vshrq_n_u8::<6>(minima));
        WithMinima {
            scales: [vandq_u8(scales, six_bits), last_scales],
            minima: [vandq_u8(minima, six_bits), last_minima],
            of_scales: widen(vmovn_u32(factors)),
            of_minima: widen(vshrn_n_u32::<16>(factors)),
        }
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn scales(&self, group: usize) -> int32x4_t {
        let four = vreinterpretq_u32_u8(self.scales[group / 4]);
        vreinterpretq_s32_u32(match group % 4 {
            0 => vandq_u32(four, vdupq_n_u32(0xff)),
            1 => byte_of_words::<1>(four),
            2 => byte_of_words::<2>(four),
            _ => vshrq_n_u32::<24>(four),
        })
    }

    #[inline]
    #[target_feature(enable = "neon,dotprod")]
    unsafe fn add(&self, sums: Floats4, total: int32x4_t, x: &Int8Block256) -> Floats4 {
        let x_sums = SplitSums::of_eight(load_words(&x.wide_sums));
        let offsets = vdupq_n_s32(0);
        let [first, last] = [vreinterpretq_s8_u8(self.minima[0]), vreinterpretq_s8_u8(self.minima[1])];
        let offsets = dot_four::<1>(dot_four::<0>(offsets, first, x_sums.high), last, x_sums.high);
        let offsets = vshlq_n_s32::<{ SplitSums::BITS }>(offsets);
        let offsets = dot_four::<1>(dot_four::<0>(offsets, first, x_sums.low), last, x_sums.low);
        let sums = vfmaq_f32(sums, vmulq_n_f32(self.of_scales, x.scale), vcvtq_f32_s32(total));
        vfmaq_f32(sums, vmulq_n_f32(self.of_minima, -x.scale), vcvtq_f32_s32(offsets))
    }
}

/// One byte of every word.
#[inline]
#[target_feature(enable = "neon")]
fn byte_of_words<const AT: u8>(words: uint32x4_t) -> uint32x4_t {
    let place = |row: u8| 0xffff_ff00 | u64::from(4 * row + AT);
    let places = vcombine_u8(vcreate_u8(place(0) | place(1) << 32), vcreate_u8(place(2) | place(3) << 32));
    vreinterpretq_u32_u8(vqtbl1q_u8(vreinterpretq_u8_u32(words), places))
}

/// Sums of x as two bytes each, so that products of bytes scale them too: sum = 2^BITS × high + low.
struct SplitSums {
    high: int8x16_t,
    low: int8x16_t,
}

impl SplitSums {
    /// Sums of 32 numbers are within ±4064, so that both parts are within a signed byte.
    const BITS: i32 = 6;

    #[inline]
    #[target_feature(enable = "neon")]
    fn of_eight(sums: int16x8_t) -> SplitSums {
        let low = vand_s8(vmovn_s16(sums), vdup_n_s8(63));
        let high = vshrn_n_s16::<{ SplitSums::BITS }>(sums);
        SplitSums { high: vcombine_s8(high, high), low: vcombine_s8(low, low) }
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn of_sixteen(first: int16x8_t, last: int16x8_t) -> SplitSums {
        let low = vuzp1q_s8(vreinterpretq_s8_s16(first), vreinterpretq_s8_s16(last));
        let high = vshrn_high_n_s16::<{ SplitSums::BITS }>(vshrn_n_s16::<{ SplitSums::BITS }>(first), last);
        SplitSums { high, low: vandq_s8(low, vdupq_n_s8(63)) }
    }
}

/// Sixteen bytes of a block.
#[inline]
#[target_feature(enable = "neon")]
fn sixteen_bytes<const BYTES: usize>(block: &[u8; BYTES], at: usize) -> uint8x16_t {
    load_bytes(field(block, at))
}

#[inline]
#[target_feature(enable = "neon")]
fn signed(registers: [uint8x16_t; 4]) -> [int8x16_t; 4] {
    let [a, b, c, d] = registers;
    [vreinterpretq_s8_u8(a), vreinterpretq_s8_u8(b), vreinterpretq_s8_u8(c), vreinterpretq_s8_u8(d)]
}

impl Quants<{ q4_k::BYTES }> for Q4K {
    type Head = WithMinima;
    const SIXTEENS: usize = 2;

    #[inline]
    fn sixteen(quarter: usize, at: usize) -> usize {
        4 * quarter + at
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn quants<const QUARTER: usize>(block: &[u8; q4_k::BYTES]) -> [int8x16_t; 4] {
        let at = q4_k::QUANTS + 32 * QUARTER;
        let (first, second, nibble) = (sixteen_bytes(block, at), sixteen_bytes(block, at + 16), vdupq_n_u8(15));
        signed([vandq_u8(first, nibble), vandq_u8(second, nibble), vshrq_n_u8::<4>(first), vshrq_n_u8::<4>(second)])
    }
}

impl Quants<{ q5_k::BYTES }> for Q5K {
    type Head = WithMinima;
    const SIXTEENS: usize = 2;

    #[inline]
    fn sixteen(quarter: usize, at: usize) -> usize {
        4 * quarter + at
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn quants<const QUARTER: usize>(block: &[u8; q5_k::BYTES]) -> [int8x16_t; 4] {
        let pair = |half: usize| {
            let nibbles = sixteen_bytes(block, q5_k::QUANTS + 32 * QUARTER + 16 * half);
            let bits = sixteen_bytes(block, q5_k::HIGH_BITS + 16 * half);
            // Bit 2 × quarter moves to bit 0 and the next one to bit 4, and from there above the nibbles.
            let alone = |bits| vandq_u8(bits, vdupq_n_u8(16));
            let (low, high) = match QUARTER {
                0 => (bits, alone(vshlq_n_u8::<3>(bits))),
                1 => (vshrq_n_u8::<2>(bits), alone(vshlq_n_u8::<1>(bits))),
                2 => (vshrq_n_u8::<4>(bits), alone(vshrq_n_u8::<1>(bits))),
                _ => (vshrq_n_u8::<6>(bits), vshrq_n_u8::<3>(bits)),
            };
            let (low, high) = (vandq_u8(low, vdupq_n_u8(1)), upper_nibbles(high, nibbles));
            (vsliq_n_u8::<4>(nibbles, low), high)
        };
        let (first, second) = (pair(0), pair(1));
        signed([first.0, second.0, first.1, second.1])
    }
}

/// What a block of four rows of Q6_K has beside quants, which are centred.
pub(super) struct Centred {
    /// Four scales of each row in a register.
    scales: [int8x16_t; 4],
    factors: Floats4,
}

impl Quants<{ q6_k::BYTES }> for Q6K {
    type Head = Centred;
    const SIXTEENS: usize = 1;

    #[inline]
    fn sixteen(quarter: usize, at: usize) -> usize {
        quarter / 2 * 8 + quarter % 2 + 2 * at
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn quants<const QUARTER: usize>(block: &[u8; q6_k::BYTES]) -> [int8x16_t; 4] {
        let (half, at) = (QUARTER / 2, QUARTER % 2 * 16);
        let (first, second) = (sixteen_bytes(block, 64 * half + at), sixteen_bytes(block, 64 * half + 32 + at));
        // Four pairs of bits; the first two move above low nibbles, the last two above high ones.
        let pairs = sixteen_bytes(block, q6_k::HIGH_BITS + 32 * half + at);
        let next = vshrq_n_u8::<2>(pairs);
        let (low_first, low_second) = (vandq_u8(pairs, vdupq_n_u8(3)), vandq_u8(next, vdupq_n_u8(3)));
        // In this order each instruction may overwrite what it inserts into.
        let high_first = upper_nibbles(vandq_u8(pairs, vdupq_n_u8(0x30)), first);
        let high_second = upper_nibbles(next, second);
        let (low_first, low_second) = (vsliq_n_u8::<4>(first, low_first), vsliq_n_u8::<4>(second, low_second));
        signed([low_first, low_second, high_first, high_second])
    }
}

impl Head<{ q6_k::BYTES }> for Centred {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn new(rows: [&[u8; q6_k::BYTES]; 4]) -> Centred {
        let [a, b, c, d] = rows;
        let factors =
            four_halves([field(a, q6_k::SCALE), field(b, q6_k::SCALE), field(c, q6_k::SCALE), field(d, q6_k::SCALE)]);
        Centred { scales: signed(turned(&rows, q6_k::SCALES)), factors }
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn scales(&self, group: usize) -> int32x4_t {
        let four = vreinterpretq_s32_s8(self.scales[group / 4]);
        let at_top = match group % 4 {
            0 => vshlq_n_s32::<24>(four),
            1 => vshlq_n_s32::<16>(four),
            2 => vshlq_n_s32::<8>(four),
            _ => four,
        };
        vshrq_n_s32::<24>(at_top)
    }

    #[inline]
    #[target_feature(enable = "neon,dotprod")]
    unsafe fn add(&self, sums: Floats4, total: int32x4_t, x: &Int8Block256) -> Floats4 {
        let [first, last] = x.sums.as_chunks().0 else { unreachable!("sixteen sums") };
        let x_sums = SplitSums::of_sixteen(load_words(first), load_words(last));
        let [a, b, c, d] = self.scales;
        let offsets = dot_four::<1>(dot_four::<0>(vdupq_n_s32(0), a, x_sums.high), b, x_sums.high);
        let offsets = dot_four::<3>(dot_four::<2>(offsets, c, x_sums.high), d, x_sums.high);
        let offsets = vshlq_n_s32::<{ SplitSums::BITS }>(offsets);
        let offsets = dot_four::<1>(dot_four::<0>(offsets, a, x_sums.low), b, x_sums.low);
        let offsets = dot_four::<3>(dot_four::<2>(offsets, c, x_sums.low), d, x_sums.low);
        // Quants are 32 too large.
        let total = vsubq_s32(total, vshlq_n_s32::<5>(offsets));
        vfmaq_f32(sums, vmulq_n_f32(self.factors, x.scale), vcvtq_f32_s32(total))
    }
}
