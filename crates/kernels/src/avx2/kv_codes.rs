//! The two products of attention over one page of small integers, sixteen lanes in two registers.

use std::arch::x86_64::*;

use super::attention::store_wanted;
use super::lanes::{Lanes16, load, prefetch_from};
use crate::kv_codes::{CodeBits, Codes, KeyCodes, Rounded, VECTOR, ValueCodes, WeightCodes};
use crate::vector::kv_codes::kv_code_kernels;

/// Query heads that share one pass, as many as there are registers for.
const HEADS: usize = 2;

/// Four numbers of each of sixteen lanes: bytes as signed numbers, half bytes as codes.
#[derive(Clone, Copy)]
struct Codes64([__m256i; 2]);

/// Sixteen sums of products with them.
#[derive(Clone, Copy)]
struct Sums16([__m256i; 2]);

impl Codes64 {
    /// Two sixteens of lanes: two vectors of bytes, or the halves of the bytes of one.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn two<const BITS: usize>(a: &[u8; VECTOR], b: &[u8; VECTOR]) -> (Codes64, Codes64) {
        let halves = |bytes: &[u8; VECTOR]| {
            let [low, high] = bytes.as_chunks::<32>().0 else { unreachable!("sixty-four bytes are twice thirty-two") };
            (load(low), load(high))
        };
        let (low, high) = halves(a);
        if BITS == 8 {
            let sign = _mm256_set1_epi8(-128);
            let (other_low, other_high) = halves(b);
            let signed = |codes: __m256i| _mm256_xor_si256(codes, sign);
            return (Codes64([signed(low), signed(high)]), Codes64([signed(other_low), signed(other_high)]));
        }
        let mask = _mm256_set1_epi8(15);
        let lower = |codes: __m256i| _mm256_and_si256(codes, mask);
        let upper = |codes: __m256i| _mm256_and_si256(_mm256_srli_epi16::<4>(codes), mask);
        (Codes64([lower(low), lower(high)]), Codes64([upper(low), upper(high)]))
    }
}

impl Sums16 {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn zero() -> Sums16 {
        Sums16([_mm256_setzero_si256(); 2])
    }

    /// Adds the products with four factors. Two products of 127 at most fit into sixteen bits.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn add_products<const BITS: usize>(self, codes: Codes64, factors: [i8; 4]) -> Sums16 {
        let factors = _mm256_set1_epi32(i32::from_le_bytes(factors.map(i8::cast_unsigned)));
        let add = |sum: __m256i, codes: __m256i| {
            let pairs = match BITS {
                8 => _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(factors, codes)),
                _ => _mm256_maddubs_epi16(codes, factors),
            };
            _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        };
        Sums16([add(self.0[0], codes.0[0]), add(self.0[1], codes.0[1])])
    }

    /// The sums of products with what the codes stand for, if all factors add up to `total`.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn floats<const BITS: usize>(self, total: i32) -> Lanes16 {
        let exact = |sums: __m256i| match BITS {
            8 => sums,
            _ => _mm256_sub_epi32(_mm256_add_epi32(sums, sums), _mm256_set1_epi32(15 * total)),
        };
        Lanes16(_mm256_cvtepi32_ps(exact(self.0[0])), _mm256_cvtepi32_ps(exact(self.0[1])))
    }
}

kv_code_kernels!("avx2,fma,f16c");
