//! Formats with blocks of 256: unpacking and integer sums, 64 quants to a register.

use std::arch::x86_64::*;

use super::interleaved256;
use crate::activations::{Int8Block256, Rows};
use crate::avx2::block256::{Format, Q4K, Q5K, Q6K, scales_and_minima};
use crate::avx2::lanes::{field, four_halves, integer_sums4, load, load16, pair, prefetch, store4};
use crate::blocks::{q4_k, q5_k, q6_k};
use crate::ops::WeightRows;
use crate::pool::TileMut;
use crate::x86::LEAST_TURNED;
use crate::x86::four_rows::four_row_loops;

/// One block of one row, ready to be multiplied with any number of columns.
#[derive(Clone, Copy)]
struct Unpacked {
    /// Four runs of 64 unsigned quants.
    quants: [__m512i; 4],
    /// What each sum of four products is multiplied with, in the lower halves of 32-bit lanes.
    scales: [__m512i; 4],
    /// 16-bit factors of the sixteen partial sums of x that are to be subtracted.
    offsets: __m256i,
}

/// Σ scale × quant × x as eight integers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn products(block: &Unpacked, x: &[__m512i; 4]) -> __m256i {
    let mut sum = _mm512_setzero_si512();
    for run in 0..4 {
        // Four products of at most 63 × 127 fit sixteen bits, so the sum is a number in the lower half of its lane,
        // and the multiplication with (scale, 0) ignores the upper half.
        let fours = _mm512_dpbusd_epi32(_mm512_setzero_si512(), block.quants[run], x[run]);
        sum = _mm512_dpwssd_epi32(sum, fours, block.scales[run]);
    }
    _mm256_add_epi32(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64::<1>(sum))
}

/// The four runs of x. Where a format keeps two neighbours of 32 in the nibbles of the same bytes, a run of 64 holds
/// the low nibbles of two such groups, so its halves lie 64 numbers apart.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn load_x<const BYTES: usize, F: Format<BYTES>>(x: &Int8Block256) -> [__m512i; 4] {
    let (parts, _) = x.values.as_chunks::<32>();
    let join = |low: usize, high: usize| {
        _mm512_inserti64x4::<1>(_mm512_castsi256_si512(load(&parts[low])), load(&parts[high]))
    };
    if F::OWN_MINIMUM {
        [join(0, 2), join(1, 3), join(4, 6), join(5, 7)]
    } else {
        [join(0, 1), join(2, 3), join(4, 5), join(6, 7)]
    }
}

four_row_loops!("avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c");

/// Sixty-four bytes of a block.
#[inline]
#[target_feature(enable = "avx512f")]
fn load64<const BYTES: usize>(block: &[u8; BYTES], at: usize) -> __m512i {
    let bytes: &[u8; 64] = field(block, at);
    // SAFETY: the reference guarantees sixty-four readable bytes.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// Scales of the four runs of Q4_K and Q5_K, and the factors of the sums of x.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2")]
fn run_scales<const BYTES: usize>(block: &[u8; BYTES]) -> ([__m512i; 4], __m256i) {
    let (scales, offsets) = scales_and_minima(block);
    let wide = _mm512_castsi256_si512(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(scales)));
    let pick = |low: i32, high: i32| {
        let index = _mm512_mask_blend_epi32(0xff00, _mm512_set1_epi32(low), _mm512_set1_epi32(high));
        _mm512_permutexvar_epi32(index, wide)
    };
    ([pick(0, 2), pick(1, 3), pick(4, 6), pick(5, 7)], offsets)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply_q4_k(weights: WeightRows<'_>, x: Rows<'_, Int8Block256>, out: &mut TileMut<'_>) {
    if x.count() >= LEAST_TURNED {
        return interleaved256::turned_q4_k(weights, x, out);
    }
    multiply::<{ q4_k::BYTES }, Q4K>(weights, x, out, |block| {
        let (scales, offsets) = run_scales(block);
        let nibble = _mm512_set1_epi8(15);
        let (first, second) = (load64(block, q4_k::QUANTS), load64(block, q4_k::QUANTS + 64));
        let low = |bytes| _mm512_and_si512(bytes, nibble);
        let high = |bytes| _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), nibble);
        Unpacked { quants: [low(first), high(first), low(second), high(second)], scales, offsets }
    });
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply_q5_k(weights: WeightRows<'_>, x: Rows<'_, Int8Block256>, out: &mut TileMut<'_>) {
    if x.count() >= LEAST_TURNED {
        return interleaved256::turned_q5_k(weights, x, out);
    }
    multiply::<{ q5_k::BYTES }, Q5K>(weights, x, out, |block| {
        let (scales, offsets) = run_scales(block);
        let (nibble, fifth) = (_mm512_set1_epi8(15), _mm512_set1_epi8(16));
        let (first, second) = (load64(block, q5_k::QUANTS), load64(block, q5_k::QUANTS + 64));
        // Bit b of a byte belongs to sub-block b: both halves of a run take their bit from the same 32 bytes.
        let bits = load::<[u8; 32]>(field(block, q5_k::HIGH_BITS));
        let join = |nibbles, low, high| {
            let bits = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high);
            _mm512_or_si512(_mm512_and_si512(nibbles, nibble), _mm512_and_si512(bits, fifth))
        };
        let quants = [
            join(first, _mm256_slli_epi16::<4>(bits), _mm256_slli_epi16::<2>(bits)),
            join(_mm512_srli_epi16::<4>(first), _mm256_slli_epi16::<3>(bits), _mm256_slli_epi16::<1>(bits)),
            join(second, bits, _mm256_srli_epi16::<2>(bits)),
            join(_mm512_srli_epi16::<4>(second), _mm256_srli_epi16::<1>(bits), _mm256_srli_epi16::<3>(bits)),
        ];
        Unpacked { quants, scales, offsets }
    });
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply_q6_k(weights: WeightRows<'_>, x: Rows<'_, Int8Block256>, out: &mut TileMut<'_>) {
    if x.count() >= LEAST_TURNED {
        return interleaved256::turned_q6_k(weights, x, out);
    }
    multiply::<{ q6_k::BYTES }, Q6K>(weights, x, out, |block| {
        let (nibble, pairs) = (_mm512_set1_epi8(15), _mm512_set1_epi8(0x30));
        let mut quants = [_mm512_setzero_si512(); 4];
        for half in 0..2 {
            let low = load64(block, 64 * half);
            let bits = load::<[u8; 32]>(field(block, q6_k::HIGH_BITS + 32 * half));
            let join = |nibbles, first, second| {
                let bits = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(first), second);
                _mm512_or_si512(_mm512_and_si512(nibbles, nibble), _mm512_and_si512(bits, pairs))
            };
            quants[2 * half] = join(low, _mm256_slli_epi16::<4>(bits), _mm256_slli_epi16::<2>(bits));
            quants[2 * half + 1] = join(_mm512_srli_epi16::<4>(low), bits, _mm256_srli_epi16::<2>(bits));
        }
        let bytes = load16(field(block, q6_k::SCALES));
        // Sign extension would fill the upper halves, which have to stay empty.
        let wide = _mm512_and_si512(_mm512_cvtepi8_epi32(bytes), _mm512_set1_epi32(0xffff));
        let quarters = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
        let pick = |first| _mm512_permutexvar_epi32(_mm512_add_epi32(_mm512_set1_epi32(first), quarters), wide);
        let scales = [pick(0), pick(4), pick(8), pick(12)];
        Unpacked { quants, scales, offsets: _mm256_slli_epi16::<5>(_mm256_cvtepi8_epi16(bytes)) }
    });
}
