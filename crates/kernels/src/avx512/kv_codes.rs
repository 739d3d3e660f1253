//! The two products of attention over one page of small integers, sixteen lanes in one register.

use std::arch::x86_64::*;
use std::ops::Range;

use super::attention::store_wanted;
use super::lanes::{Lanes16, reduce4};
use crate::avx2::lanes::{load16, prefetch_from};
use crate::kv_codes::{
    CodeBits, Codes, CodesMut, KeyCodes, MOST, MOST_TOKENS, SealScratch, Side, VECTOR, ValueCodes, byte_factor,
};
use crate::scalar::float::padded;
use crate::vector::kv_codes::{TwoSixteens, kv_code_kernels};

/// Query heads that share one pass, as many as there are registers for.
const HEADS: usize = 8;

/// Four numbers of each of sixteen lanes. One factor of a product is unsigned: keys have 128 added, and values do not need it,
/// because weights are never negative.
#[derive(Clone, Copy)]
struct Codes64(__m512i);

/// Sixteen sums of products with them.
#[derive(Clone, Copy)]
struct Sums16(__m512i);

impl Codes64 {
    /// Two sixteens of lanes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn two<const BITS: usize, const VALUES: bool>(two: TwoSixteens<'_>) -> (Codes64, Codes64) {
        // SAFETY: the references guarantee sixty-four readable bytes.
        let load = |bytes: &[u8; VECTOR]| unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) };
        let shifted = |codes: __m512i, by: u32| _mm512_srl_epi16(codes, _mm_cvtsi32_si128(by as i32));
        let only = |codes: __m512i, bits: i8| _mm512_and_si512(codes, _mm512_set1_epi8(bits));
        let table = _mm512_broadcast_i32x4(load16(&const { CodeBits::table(BITS, !VALUES) }));
        let signed =
            |codes: __m512i| Codes64(if VALUES { _mm512_xor_si512(codes, _mm512_set1_epi8(-128)) } else { codes });
        let values = |codes: __m512i| Codes64(_mm512_shuffle_epi8(table, codes));
        let first = load(two.first);
        match BITS {
            8 => (signed(first), signed(load(two.second))),
            4 => (values(only(first, 15)), values(only(_mm512_srli_epi16::<4>(first), 15))),
            _ => {
                let codes = shifted(first, two.shift);
                let [mut a, mut b] = [only(codes, 3), only(_mm512_srli_epi16::<2>(codes), 3)];
                if BITS == 3 {
                    let third = shifted(load(two.third), two.third_shift);
                    a = _mm512_or_si512(a, _mm512_slli_epi16::<2>(only(third, 1)));
                    b = _mm512_or_si512(b, _mm512_slli_epi16::<1>(only(third, 2)));
                }
                (values(a), values(b))
            }
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
    fn add_products<const VALUES: bool>(self, codes: Codes64, factors: [i8; 4]) -> Sums16 {
        let factors = _mm512_set1_epi32(i32::from_le_bytes(factors.map(i8::cast_unsigned)));
        let (unsigned, signed) = if VALUES { (factors, codes.0) } else { (codes.0, factors) };
        Sums16(_mm512_dpbusd_epi32(self.0, unsigned, signed))
    }

    /// The sums of products of keys with factors that add up to `total`.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn floats_of_keys(self, total: i32) -> Lanes16 {
        Lanes16::from_integers(_mm512_sub_epi32(self.0, _mm512_set1_epi32(128 * total)))
    }

    /// The sums of weighted values.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn floats_of_values(self) -> Lanes16 {
        Lanes16::from_integers(self.0)
    }
}

kv_code_kernels!("avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c");
