//! How each format with blocks of 256 becomes codes in registers.

use std::arch::x86_64::*;

use super::lanes::{bits_to_bytes, load, load16};
use crate::blocks::{iq4_nl, iq4_xs, q2_k, q3_k, tq1_0, tq2_0};
use crate::codes::{CodeRange, Format256, Iq4Xs, Lattice, Q2K, Q3K, Tq1, Tq2};
use crate::vector::field;

/// One block of one row.
pub(crate) struct Unpacked {
    /// Eight runs of 32 codes; shifted ones with their offset.
    pub(crate) quants: [__m256i; 8],
    /// Sixteen 16-bit scales, one for every sixteen codes.
    pub(crate) scales: __m256i,
    /// Sixteen 16-bit minima.
    pub(crate) minima: __m256i,
}

/// A format that can be unpacked to registers.
pub(crate) trait Registers<const BYTES: usize>: Format256<BYTES> {
    /// The codes, scales and minima of `Format256`.
    ///
    /// # Safety
    /// The CPU must have AVX2.
    unsafe fn registers(block: &[u8; BYTES]) -> Unpacked;
}

/// One block in registers.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn unpack<const BYTES: usize, F: Registers<BYTES>>(block: &[u8; BYTES]) -> Unpacked {
    // SAFETY: this function itself may only be called where the CPU has AVX2.
    unsafe { F::registers(block) }
}

impl<const BYTES: usize, L: Lattice<BYTES>> Registers<BYTES> for L {
    // A call costs little next to 32 lookups, and compiled for more than AVX2 the lookups become slow gathers.
    #[inline(never)]
    #[target_feature(enable = "avx2")]
    unsafe fn registers(block: &[u8; BYTES]) -> Unpacked {
        let CodeRange::Shifted { offset, .. } = L::RANGE else { unreachable!("lattices are small") };
        let offset = _mm256_set1_epi8(offset as i8);
        let mut quants = [offset; 8];
        let signs = L::signs(block);
        for (run, quants) in quants.iter_mut().enumerate() {
            let [a, b, c, d] = L::eights(block, run);
            *quants = _mm256_setr_epi64x(a as i64, b as i64, c as i64, d as i64);
            if let Some(signs) = signs {
                // The two's complement: all bits turned, plus one.
                let negative = bits_to_bytes(signs[run]);
                let shift = _mm256_sub_epi8(offset, negative);
                *quants = _mm256_add_epi8(_mm256_xor_si256(*quants, negative), shift);
            }
        }
        let nibbles = _mm_cvtsi64_si128(L::scale_nibbles(block) as i64);
        let both = _mm_unpacklo_epi8(nibbles, _mm_srli_epi16::<4>(nibbles));
        let scales = _mm256_cvtepu8_epi16(_mm_and_si128(both, _mm_set1_epi8(15)));
        let scales = _mm256_add_epi16(_mm256_add_epi16(scales, scales), _mm256_set1_epi16(1));
        Unpacked { quants, scales, minima: _mm256_setzero_si256() }
    }
}

/// The eight runs of 64 bytes of bit pairs.
#[inline]
#[target_feature(enable = "avx2")]
fn bit_pairs(bytes: &[u8; 64]) -> [__m256i; 8] {
    let mut runs = [_mm256_set1_epi8(3); 8];
    for (half, runs) in runs.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let bytes = load::<[u8; 32]>(field(bytes, 32 * half));
        let shifted =
            [bytes, _mm256_srli_epi16::<2>(bytes), _mm256_srli_epi16::<4>(bytes), _mm256_srli_epi16::<6>(bytes)];
        runs.iter_mut().zip(shifted).for_each(|(run, pairs)| *run = _mm256_and_si256(*run, pairs));
    }
    runs
}

impl Registers<{ q2_k::BYTES }> for Q2K {
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn registers(block: &[u8; q2_k::BYTES]) -> Unpacked {
        let (bytes, nibble) = (load16(field(block, 0)), _mm_set1_epi8(15));
        Unpacked {
            quants: bit_pairs(field(block, q2_k::QUANTS)),
            scales: _mm256_cvtepu8_epi16(_mm_and_si128(bytes, nibble)),
            minima: _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16::<4>(bytes), nibble)),
        }
    }
}

impl Registers<{ q3_k::BYTES }> for Q3K {
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn registers(block: &[u8; q3_k::BYTES]) -> Unpacked {
        let mut quants = bit_pairs(field(block, q3_k::QUANTS));
        let (high, third) = (load::<[u8; 32]>(field(block, 0)), _mm256_set1_epi8(4));
        // Bit b of a byte belongs to run b and moves to bit 2.
        let bits = [
            _mm256_slli_epi16::<2>(high),
            _mm256_slli_epi16::<1>(high),
            high,
            _mm256_srli_epi16::<1>(high),
            _mm256_srli_epi16::<2>(high),
            _mm256_srli_epi16::<3>(high),
            _mm256_srli_epi16::<4>(high),
            _mm256_srli_epi16::<5>(high),
        ];
        for (quants, bits) in quants.iter_mut().zip(bits) {
            *quants = _mm256_or_si256(*quants, _mm256_and_si256(bits, third));
        }
        // The twelve bytes of scales are the end of the block but for the f16, so a load of sixteen starts two early.
        let packed = load16(field(block, q3_k::SCALES - 2));
        let low = _mm_shuffle_epi8(packed, _mm_setr_epi8(2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5, 6, 7, 8, 9));
        let low = _mm_and_si128(_mm_blend_epi32::<0b1100>(low, _mm_srli_epi16::<4>(low)), _mm_set1_epi8(15));
        let high = _mm_shuffle_epi32::<0>(_mm_bsrli_si128::<10>(packed));
        let high = _mm_and_si128(_mm_srlv_epi32(high, _mm_setr_epi32(0, 2, 4, 6)), _mm_set1_epi8(3));
        let scales = _mm256_cvtepu8_epi16(_mm_or_si128(low, _mm_slli_epi16::<4>(high)));
        let scales = _mm256_sub_epi16(scales, _mm256_set1_epi16(q3_k::SCALE_OFFSET));
        Unpacked { quants, scales, minima: _mm256_setzero_si256() }
    }
}

impl Registers<{ iq4_xs::BYTES }> for Iq4Xs {
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn registers(block: &[u8; iq4_xs::BYTES]) -> Unpacked {
        let (nibble, mut quants) = (_mm256_set1_epi8(15), [_mm256_setzero_si256(); 8]);
        let levels = _mm256_broadcastsi128_si256(load16(&iq4_nl::LEVELS.map(|level| level as u8)));
        for (run, quants) in quants.iter_mut().enumerate() {
            let bytes = load16(field(block, iq4_xs::QUANTS + 16 * run));
            let nibbles = _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16::<4>(bytes), bytes), nibble);
            *quants = _mm256_shuffle_epi8(levels, nibbles);
        }
        // A lane per run, whose two groups of sixteen share the scale.
        let word = |at| _mm256_set1_epi32(i32::from_le_bytes(*field(block, at)));
        let low = _mm256_srlv_epi32(word(iq4_xs::LOW_SCALES), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
        let high = _mm256_srlv_epi32(word(iq4_xs::HIGH_SCALES), _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
        let low = _mm256_and_si256(low, _mm256_set1_epi32(15));
        let high = _mm256_slli_epi32::<4>(_mm256_and_si256(high, _mm256_set1_epi32(3)));
        let scales = _mm256_or_si256(low, high);
        let twice = _mm256_or_si256(scales, _mm256_slli_epi32::<16>(scales));
        let scales = _mm256_sub_epi16(twice, _mm256_set1_epi16(iq4_xs::SCALE_OFFSET));
        Unpacked { quants, scales, minima: _mm256_setzero_si256() }
    }
}

impl Registers<{ tq1_0::BYTES }> for Tq1 {
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn registers(block: &[u8; tq1_0::BYTES]) -> Unpacked {
        let thirds = (_mm256_set1_epi8(86), _mm256_set1_epi8(171_u8 as i8));
        // The first digit of a fraction of 256 says how many thirds it reaches; three times the fraction shows the next.
        let digit = |fraction| {
            let reaches = |third| _mm256_cmpeq_epi8(_mm256_max_epu8(fraction, third), fraction);
            let both = _mm256_add_epi8(reaches(thirds.0), reaches(thirds.1));
            _mm256_sub_epi8(_mm256_setzero_si256(), both)
        };
        let next = |fraction| _mm256_add_epi8(fraction, _mm256_add_epi8(fraction, fraction));
        let mut quants = [_mm256_setzero_si256(); 8];
        let mut first = load::<[u8; 32]>(field(block, 0));
        for quants in &mut quants[..5] {
            *quants = digit(first);
            first = next(first);
        }
        // Sixteen bytes of five digits and four of four: one row of sixteen numbers after the other.
        let mut second = load16(field(block, 32));
        let mut rows = [second; 6];
        let (low, high) = (|whole| _mm256_castsi256_si128(whole), |part| _mm256_castsi128_si256(part));
        for row in &mut rows[..5] {
            *row = second;
            second = low(next(high(second)));
        }
        let word = _mm_set1_epi32(i32::from_le_bytes(*field(block, 48)));
        let powers = _mm_setr_epi32(0x0001_0001, 0x0003_0003, 0x0009_0009, 0x001b_001b);
        let even = _mm_and_si128(_mm_mullo_epi16(word, powers), _mm_set1_epi16(0xff));
        let odd = _mm_mullo_epi16(_mm_srli_epi16::<8>(word), powers);
        rows[5] = _mm_or_si128(even, _mm_slli_epi16::<8>(odd));
        for pair in 0..3 {
            quants[5 + pair] = digit(_mm256_set_m128i(rows[2 * pair + 1], rows[2 * pair]));
        }
        Unpacked { quants, scales: _mm256_set1_epi16(1), minima: _mm256_setzero_si256() }
    }
}

impl Registers<{ tq2_0::BYTES }> for Tq2 {
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn registers(block: &[u8; tq2_0::BYTES]) -> Unpacked {
        let quants = bit_pairs(field(block, 0));
        Unpacked { quants, scales: _mm256_set1_epi16(1), minima: _mm256_setzero_si256() }
    }
}
