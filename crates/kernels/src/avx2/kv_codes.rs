//! The two products of attention over one page of small integers, sixteen lanes in two registers.

use std::arch::x86_64::*;
use std::ops::Range;

use super::attention::store_wanted;
use super::lanes::{Lanes16, load, load16, prefetch_from, reduce4};
use crate::kv_codes::{
    CodeBits, Codes, CodesMut, KeyCodes, MOST, MOST_TOKENS, SealScratch, Side, VECTOR, ValueCodes, byte_factor,
};
use crate::scalar::float::padded;
use crate::vector::kv_codes::{TwoSixteens, kv_code_kernels};

/// Query heads that share one pass, as many as there are registers for.
const HEADS: usize = 2;

/// Four numbers of each of sixteen lanes.
#[derive(Clone, Copy)]
struct Codes64([__m256i; 2]);

/// Sixteen sums of products with them.
#[derive(Clone, Copy)]
struct Sums16([__m256i; 2]);

impl Codes64 {
    /// Two sixteens of lanes.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn two<const BITS: usize, const VALUES: bool>(two: TwoSixteens<'_>) -> (Codes64, Codes64) {
        let halves = |bytes: &[u8; VECTOR]| {
            let [low, high] = bytes.as_chunks::<32>().0 else { unreachable!("sixty-four bytes are twice thirty-two") };
            [load(low), load(high)]
        };
        let [low, high] = halves(two.first);
        if BITS == 8 {
            let signed = |codes: __m256i| _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
            let [other_low, other_high] = halves(two.second);
            return (Codes64([signed(low), signed(high)]), Codes64([signed(other_low), signed(other_high)]));
        }
        let [third_low, third_high] = halves(two.third);
        let (a, b) = Codes64::few_bits::<BITS>(low, third_low, &two);
        let (other_a, other_b) = Codes64::few_bits::<BITS>(high, third_high, &two);
        (Codes64([a, other_a]), Codes64([b, other_b]))
    }

    /// The numbers of eight lanes of each sixteen.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn few_bits<const BITS: usize>(codes: __m256i, third: __m256i, two: &TwoSixteens<'_>) -> (__m256i, __m256i) {
        let shifted = |codes: __m256i, by: u32| _mm256_srl_epi16(codes, _mm_cvtsi32_si128(by as i32));
        let only = |codes: __m256i, bits: i8| _mm256_and_si256(codes, _mm256_set1_epi8(bits));
        let table = _mm256_broadcastsi128_si256(load16(&const { CodeBits::table(BITS, false) }));
        let values = |codes: __m256i| _mm256_shuffle_epi8(table, codes);
        if BITS == 4 {
            return (values(only(codes, 15)), values(only(_mm256_srli_epi16::<4>(codes), 15)));
        }
        let codes = shifted(codes, two.shift);
        let [mut a, mut b] = [only(codes, 3), only(_mm256_srli_epi16::<2>(codes), 3)];
        if BITS == 3 {
            let third = shifted(third, two.third_shift);
            a = _mm256_or_si256(a, _mm256_slli_epi16::<2>(only(third, 1)));
            b = _mm256_or_si256(b, _mm256_slli_epi16::<1>(only(third, 2)));
        }
        (values(a), values(b))
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
    fn add_products<const VALUES: bool>(self, codes: Codes64, factors: [i8; 4]) -> Sums16 {
        let factors = _mm256_set1_epi32(i32::from_le_bytes(factors.map(i8::cast_unsigned)));
        let add = |sum: __m256i, codes: __m256i| {
            // One factor is unsigned; weights are never negative.
            let pairs = match VALUES {
                true => _mm256_maddubs_epi16(factors, codes),
                false => _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(factors, codes)),
            };
            _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        };
        Sums16([add(self.0[0], codes.0[0]), add(self.0[1], codes.0[1])])
    }

    /// The sums as they are: keys have their signs already.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn floats_of_keys(self, _total: i32) -> Lanes16 {
        self.floats_of_values()
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn floats_of_values(self) -> Lanes16 {
        Lanes16(_mm256_cvtepi32_ps(self.0[0]), _mm256_cvtepi32_ps(self.0[1]))
    }
}

kv_code_kernels!("avx2,fma,f16c");
