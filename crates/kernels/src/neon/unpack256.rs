//! How each format with blocks of 256 becomes signed codes in registers.

use std::arch::aarch64::*;

use super::lanes::{bits_to_bytes, load, load_bytes, shifted};
use crate::blocks::{iq4_nl, iq4_xs, q2_k, q3_k, tq1_0, tq2_0};
use crate::codes::{CodeRange, Format256, Iq4Xs, Lattice, Q2K, Q3K, Tq1, Tq2};
use crate::vector::field;

/// Sixteen codes to a register.
type Codes = [int8x16_t; 16];

/// A format whose codes can be unpacked to registers.
pub(super) trait Registers<const BYTES: usize>: Format256<BYTES> {
    /// The same numbers as `Format256::codes`.
    ///
    /// # Safety
    /// The CPU must have NEON.
    unsafe fn registers(block: &[u8; BYTES]) -> Codes;
}

/// The codes of one block.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn codes<const BYTES: usize, F: Registers<BYTES>>(block: &[u8; BYTES]) -> Codes {
    // SAFETY: this function itself may only be called where the CPU has NEON.
    unsafe { F::registers(block) }
}

/// One register for every sixteen codes: `make` gets the run of 32 they belong to, and whether they are its second half.
#[inline]
#[target_feature(enable = "neon")]
fn by_runs(make: impl Fn(usize, usize) -> uint8x16_t, offset: u8) -> Codes {
    let mut codes = [vdupq_n_s8(0); 16];
    for (at, codes) in codes.iter_mut().enumerate() {
        *codes = vreinterpretq_s8_u8(vsubq_u8(make(at / 2, at % 2), vdupq_n_u8(offset)));
    }
    codes
}

#[inline]
#[target_feature(enable = "neon")]
fn masked(bytes: uint8x16_t, mask: u8) -> uint8x16_t {
    vandq_u8(bytes, vdupq_n_u8(mask))
}

/// Sixteen codes of a run out of 64 bytes of bit pairs.
#[inline]
#[target_feature(enable = "neon")]
fn bit_pairs(bytes: &[u8; 64], run: usize, half: usize) -> uint8x16_t {
    let bytes = load_bytes(field(bytes, 32 * (run / 4) + 16 * half));
    masked(shifted(bytes, -2 * (run as i32 % 4)), 3)
}

impl Registers<{ q2_k::BYTES }> for Q2K {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn registers(block: &[u8; q2_k::BYTES]) -> Codes {
        by_runs(|run, half| bit_pairs(field(block, q2_k::QUANTS), run, half), 0)
    }
}

impl Registers<{ q3_k::BYTES }> for Q3K {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn registers(block: &[u8; q3_k::BYTES]) -> Codes {
        let third = |run: usize, half: usize| {
            // Bit `run` moves to bit 2.
            masked(shifted(load_bytes(field(block, 16 * half)), 2 - run as i32), 4)
        };
        let quants = |run, half| vorrq_u8(bit_pairs(field(block, q3_k::QUANTS), run, half), third(run, half));
        by_runs(quants, q3_k::OFFSET)
    }
}

impl Registers<{ iq4_xs::BYTES }> for Iq4Xs {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn registers(block: &[u8; iq4_xs::BYTES]) -> Codes {
        let levels = vreinterpretq_u8_s8(load(&iq4_nl::LEVELS));
        let level = |run: usize, half: usize| {
            let bytes = load_bytes(field(block, iq4_xs::QUANTS + 16 * run));
            vqtbl1q_u8(levels, masked(shifted(bytes, -4 * half as i32), 15))
        };
        by_runs(level, 0)
    }
}

impl Registers<{ tq1_0::BYTES }> for Tq1 {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn registers(block: &[u8; tq1_0::BYTES]) -> Codes {
        // The first digit of a fraction of 256 says how many thirds it reaches; three times the fraction shows the next.
        let digit = |fraction: uint8x16_t| {
            let both = vaddq_u8(vcgeq_u8(fraction, vdupq_n_u8(86)), vcgeq_u8(fraction, vdupq_n_u8(171)));
            vsubq_s8(vdupq_n_s8(-(tq1_0::OFFSET as i8)), vreinterpretq_s8_u8(both))
        };
        let power = |bytes: uint8x16_t, digit: usize| vmulq_u8(bytes, vdupq_n_u8([1, 3, 9, 27, 81][digit]));
        let mut codes = [vdupq_n_s8(0); 16];
        for (at, codes) in codes.iter_mut().enumerate() {
            // 32 bytes of five digits, 16 of five, 4 of four.
            *codes = digit(match at {
                ..10 => power(load_bytes(field(block, 16 * (at % 2))), at / 2),
                10..15 => power(load_bytes(field(block, 32)), at - 10),
                _ => {
                    let word = vdupq_n_u32(u32::from_le_bytes(*field(block, 48)));
                    let powers = vcombine_u8(vcreate_u8(0x0303_0303_0101_0101), vcreate_u8(0x1b1b_1b1b_0909_0909));
                    vmulq_u8(vreinterpretq_u8_u32(word), powers)
                }
            });
        }
        codes
    }
}

impl Registers<{ tq2_0::BYTES }> for Tq2 {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn registers(block: &[u8; tq2_0::BYTES]) -> Codes {
        by_runs(|run, half| bit_pairs(field(block, 0), run, half), tq2_0::OFFSET)
    }
}

impl<const BYTES: usize, L: Lattice<BYTES>> Registers<BYTES> for L {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn registers(block: &[u8; BYTES]) -> Codes {
        let CodeRange::Shifted { offset, .. } = L::RANGE else { unreachable!("lattices are small") };
        let signs = L::signs(block);
        let mut codes = [vdupq_n_s8(0); 16];
        for (run, codes) in codes.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            let eights = L::eights(block, run);
            for half in 0..2 {
                let points = vcombine_u8(vcreate_u8(eights[2 * half]), vcreate_u8(eights[2 * half + 1]));
                codes[half] = vreinterpretq_s8_u8(match signs {
                    // The two's complement: all bits turned, plus one.
                    Some(signs) => {
                        let negative = bits_to_bytes((signs[run] >> (16 * half)) as u16);
                        vsubq_u8(veorq_u8(points, negative), negative)
                    }
                    None => vsubq_u8(points, vdupq_n_u8(offset)),
                });
            }
        }
        codes
    }
}
