//! The two products of attention over one page of small integers, sixteen lanes in one register.

use std::arch::x86_64::*;

use super::attention::store_wanted;
use super::lanes::Lanes16;
use crate::avx2::lanes::prefetch_from;
use crate::kv_codes::{CodeBits, Codes, KeyCodes, Rounded, VECTOR, ValueCodes, WeightCodes};
use crate::vector::kv_codes::kv_code_kernels;

/// Query heads that share one pass, as many as there are registers for.
const HEADS: usize = 8;

/// Four numbers of each of sixteen lanes, as codes.
#[derive(Clone, Copy)]
struct Codes64(__m512i);

/// Sixteen sums of products with codes.
#[derive(Clone, Copy)]
struct Sums16(__m512i);

impl Codes64 {
    /// Two sixteens of lanes: two vectors of bytes, or the halves of the bytes of one.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn two<const BITS: usize>(a: &[u8; VECTOR], b: &[u8; VECTOR]) -> (Codes64, Codes64) {
        // SAFETY: the references guarantee sixty-four readable bytes.
        let load = |bytes: &[u8; VECTOR]| unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) };
        let (a, low) = (load(a), _mm512_set1_epi8(15));
        match BITS {
            8 => (Codes64(a), Codes64(load(b))),
            _ => (Codes64(_mm512_and_si512(a, low)), Codes64(_mm512_and_si512(_mm512_srli_epi16::<4>(a), low))),
        }
    }
}

impl Sums16 {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn zero() -> Sums16 {
        Sums16(_mm512_setzero_si512())
    }

    /// Adds the products with four factors.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vnni")]
    fn add_products<const BITS: usize>(self, codes: Codes64, factors: [i8; 4]) -> Sums16 {
        let factors = _mm512_set1_epi32(i32::from_le_bytes(factors.map(i8::cast_unsigned)));
        Sums16(_mm512_dpbusd_epi32(self.0, codes.0, factors))
    }

    /// The sums of products with what the codes stand for, if all factors add up to `total`.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn floats<const BITS: usize>(self, total: i32) -> Lanes16 {
        let sums = match BITS {
            8 => _mm512_sub_epi32(self.0, _mm512_set1_epi32(128 * total)),
            _ => _mm512_sub_epi32(_mm512_add_epi32(self.0, self.0), _mm512_set1_epi32(15 * total)),
        };
        Lanes16::from_integers(sums)
    }
}

kv_code_kernels!("avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c");
