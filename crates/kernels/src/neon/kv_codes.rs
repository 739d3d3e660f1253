//! The two products of attention over one page of small integers, sixteen lanes in four registers.

use std::arch::aarch64::*;
use std::ops::Range;

use super::attention::store_wanted;
use super::lanes::{Lanes16, dot, load_bytes, prefetch_from, reduce4, shifted};
use super::words::splat_bytes;
use crate::kv_codes::{
    CodeBits, Codes, CodesMut, KeyCodes, MOST, MOST_TOKENS, SealScratch, Side, VECTOR, ValueCodes, byte_factor,
};
use crate::scalar::float::padded;
use crate::vector::kv_codes::{TwoSixteens, kv_code_kernels};

/// Query heads that share one pass, as many as there are registers for.
const HEADS: usize = 2;

/// Four numbers of each of sixteen lanes.
#[derive(Clone, Copy)]
struct Codes64([int8x16_t; 4]);

/// Sixteen sums of products with them.
#[derive(Clone, Copy)]
struct Sums16([int32x4_t; 4]);

impl Codes64 {
    /// Two sixteens of lanes.
    #[inline]
    #[target_feature(enable = "neon")]
    fn two<const BITS: usize, const VALUES: bool>(two: TwoSixteens<'_>) -> (Codes64, Codes64) {
        let (first, second, third) = (fours(two.first), fours(two.second), fours(two.third));
        let (mut a, mut b) = ([vdupq_n_s8(0); 4], [vdupq_n_s8(0); 4]);
        for at in 0..4 {
            (a[at], b[at]) = match BITS {
                8 => (signed(first[at]), signed(second[at])),
                4 => (levels::<BITS>(only(first[at], 15)), levels::<BITS>(vshrq_n_u8::<4>(first[at]))),
                _ => few_bits::<BITS>(first[at], third[at], &two),
            };
        }
        (Codes64(a), Codes64(b))
    }
}

/// The numbers of four lanes of each sixteen, of two or three bits.
#[inline]
#[target_feature(enable = "neon")]
fn few_bits<const BITS: usize>(codes: uint8x16_t, third: uint8x16_t, two: &TwoSixteens<'_>) -> (int8x16_t, int8x16_t) {
    let codes = shifted(codes, -(two.shift as i32));
    let (mut a, mut b) = (only(codes, 3), only(vshrq_n_u8::<2>(codes), 3));
    if BITS == 3 {
        let third = shifted(third, -(two.third_shift as i32));
        a = vorrq_u8(a, vshlq_n_u8::<2>(only(third, 1)));
        b = vorrq_u8(b, vshlq_n_u8::<1>(only(third, 2)));
    }
    (levels::<BITS>(a), levels::<BITS>(b))
}

/// What codes stand for.
#[inline]
#[target_feature(enable = "neon")]
fn levels<const BITS: usize>(codes: uint8x16_t) -> int8x16_t {
    vqtbl1q_s8(super::lanes::load(&const { CodeBits::table(BITS, false) }), codes)
}

#[inline]
#[target_feature(enable = "neon")]
fn only(codes: uint8x16_t, bits: u8) -> uint8x16_t {
    vandq_u8(codes, vdupq_n_u8(bits))
}

/// Numbers of eight bits, of which 128 was added to each.
#[inline]
#[target_feature(enable = "neon")]
fn signed(codes: uint8x16_t) -> int8x16_t {
    vreinterpretq_s8_u8(veorq_u8(codes, vdupq_n_u8(128)))
}

#[inline]
#[target_feature(enable = "neon")]
fn fours(bytes: &[u8; VECTOR]) -> [uint8x16_t; 4] {
    let [a, b, c, d] = bytes.as_chunks().0 else { unreachable!("sixty-four bytes are four times sixteen") };
    [load_bytes(a), load_bytes(b), load_bytes(c), load_bytes(d)]
}

impl Sums16 {
    #[inline]
    #[target_feature(enable = "neon")]
    fn zero() -> Sums16 {
        Sums16([vdupq_n_s32(0); 4])
    }

    /// Adds the products with four factors.
    #[inline]
    #[target_feature(enable = "neon,dotprod")]
    fn add_products<const VALUES: bool>(self, codes: Codes64, factors: [i8; 4]) -> Sums16 {
        let factors = vreinterpretq_s8_s32(splat_bytes(&factors));
        let mut sums = self.0;
        for part in 0..4 {
            sums[part] = dot(sums[part], codes.0[part], factors);
        }
        Sums16(sums)
    }

    /// The sums as they are: keys have their signs already.
    #[inline]
    #[target_feature(enable = "neon")]
    fn floats_of_keys(self, _total: i32) -> Lanes16 {
        self.floats_of_values()
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn floats_of_values(self) -> Lanes16 {
        let [a, b, c, d] = self.0;
        Lanes16([vcvtq_f32_s32(a), vcvtq_f32_s32(b), vcvtq_f32_s32(c), vcvtq_f32_s32(d)])
    }
}

kv_code_kernels!("neon,dotprod");
