//! Formats with blocks of 256 whose codes lie in the block itself: bit pairs, levels, base-three digits.

use super::{CodeRange, Format256};
use crate::blocks::{iq4_nl, iq4_xs, q2_k, q3_k, tq1_0, tq2_0, word16};

/// Q2_K.
pub(crate) struct Q2K;
/// Q3_K.
pub(crate) struct Q3K;
/// IQ4_XS.
pub(crate) struct Iq4Xs;
/// TQ1_0.
pub(crate) struct Tq1;
/// TQ2_0.
pub(crate) struct Tq2;

/// Element `i` of 64 bytes of bit pairs.
#[inline]
fn bit_pair(pairs: &[u8], i: usize) -> i8 {
    ((pairs[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2)) & 3) as i8
}

impl Format256<{ q2_k::BYTES }> for Q2K {
    const CODES: CodeRange = CodeRange::Shifted { offset: 0, largest: 3 };
    const MINIMUM_SCALE: Option<usize> = Some(q2_k::MINIMUM_SCALE);

    fn codes(block: &[u8; q2_k::BYTES]) -> [i8; 256] {
        std::array::from_fn(|i| bit_pair(&block[q2_k::QUANTS..], i))
    }

    fn scales(block: &[u8; q2_k::BYTES]) -> [i16; 16] {
        std::array::from_fn(|group| i16::from(block[group] & 15))
    }

    fn minima(block: &[u8; q2_k::BYTES]) -> [i16; 16] {
        std::array::from_fn(|group| i16::from(block[group] >> 4))
    }

    fn scale_bits(block: &[u8; q2_k::BYTES]) -> u16 {
        word16(block, q2_k::SCALE)
    }
}

impl Format256<{ q3_k::BYTES }> for Q3K {
    const CODES: CodeRange = CodeRange::Shifted { offset: q3_k::OFFSET, largest: 7 };

    fn codes(block: &[u8; q3_k::BYTES]) -> [i8; 256] {
        std::array::from_fn(|i| {
            let high = ((block[i % 32] >> (i / 32)) & 1) as i8;
            (bit_pair(&block[q3_k::QUANTS..], i) | (high << 2)) - q3_k::OFFSET as i8
        })
    }

    fn scales(block: &[u8; q3_k::BYTES]) -> [i16; 16] {
        let packed = &block[q3_k::SCALES..];
        std::array::from_fn(|group| {
            let low = (packed[group % 8] >> (group / 8 * 4)) & 15;
            let high = (packed[8 + group % 4] >> (group / 4 * 2)) & 3;
            i16::from(low | (high << 4)) - q3_k::SCALE_OFFSET
        })
    }

    fn scale_bits(block: &[u8; q3_k::BYTES]) -> u16 {
        word16(block, q3_k::SCALE)
    }
}

impl Format256<{ iq4_xs::BYTES }> for Iq4Xs {
    const CODES: CodeRange = CodeRange::Wide;

    fn codes(block: &[u8; iq4_xs::BYTES]) -> [i8; 256] {
        std::array::from_fn(|i| {
            let nibble = (block[iq4_xs::QUANTS + i / 32 * 16 + i % 16] >> (i / 16 % 2 * 4)) & 15;
            iq4_nl::LEVELS[usize::from(nibble)]
        })
    }

    fn scales(block: &[u8; iq4_xs::BYTES]) -> [i16; 16] {
        let high = word16(block, iq4_xs::HIGH_SCALES);
        std::array::from_fn(|group| {
            let run = group / 2;
            let low = (block[iq4_xs::LOW_SCALES + run / 2] >> (run % 2 * 4)) & 15;
            i16::from(low) + (((high >> (2 * run)) & 3) << 4) as i16 - iq4_xs::SCALE_OFFSET
        })
    }
}

impl Format256<{ tq1_0::BYTES }> for Tq1 {
    const CODES: CodeRange = CodeRange::Shifted { offset: tq1_0::OFFSET, largest: 2 };

    fn codes(block: &[u8; tq1_0::BYTES]) -> [i8; 256] {
        let mut codes = [0; 256];
        let mut at = 0;
        for (start, bytes, digits) in tq1_0::PARTS {
            // Multiplying a fraction by three moves its first digit before the point.
            for power in [1, 3, 9, 27, 81_u8].into_iter().take(digits) {
                for byte in &block[start..start + bytes] {
                    let digit = (u16::from(byte.wrapping_mul(power)) * 3) >> 8;
                    codes[at] = digit as i8 - tq1_0::OFFSET as i8;
                    at += 1;
                }
            }
        }
        codes
    }

    fn scales(_block: &[u8; tq1_0::BYTES]) -> [i16; 16] {
        [1; 16]
    }

    fn scale_bits(block: &[u8; tq1_0::BYTES]) -> u16 {
        word16(block, tq1_0::SCALE)
    }
}

impl Format256<{ tq2_0::BYTES }> for Tq2 {
    const CODES: CodeRange = CodeRange::Shifted { offset: tq2_0::OFFSET, largest: 3 };

    fn codes(block: &[u8; tq2_0::BYTES]) -> [i8; 256] {
        std::array::from_fn(|i| bit_pair(block, i) - tq2_0::OFFSET as i8)
    }

    fn scales(_block: &[u8; tq2_0::BYTES]) -> [i16; 16] {
        [1; 16]
    }

    fn scale_bits(block: &[u8; tq2_0::BYTES]) -> u16 {
        word16(block, tq2_0::SCALE)
    }
}
