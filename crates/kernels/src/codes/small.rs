//! Formats with runs of 32: nibbles, plain or with fifth bits or as choices from sixteen levels.

use super::Format32;
use crate::blocks::{half_at, int4_group128, int4_zero32, iq4_nl, mxfp4, nf4, q4_1, q5_0, q5_1, word32};

/// Q4_1.
pub(crate) struct Q4With1;
/// Q5_0.
pub(crate) struct Q5With0;
/// Q5_1.
pub(crate) struct Q5With1;
/// IQ4_NL.
pub(crate) struct Iq4Nl;
/// MXFP4.
pub(crate) struct Mxfp4;
/// NF4.
pub(crate) struct Nf4;
/// INT4_G128.
pub(crate) struct Int4Group128;
/// INT4_Z32.
pub(crate) struct Int4Zero32;

/// The 32 nibbles of the sixteen bytes from `at` on: the low ones, then the high ones.
#[inline]
fn nibbles(block: &[u8], at: usize) -> [i8; 32] {
    std::array::from_fn(|i| ((block[at + i % 16] >> (i / 16 * 4)) & 15) as i8)
}

/// Nibbles with a fifth bit each, from the 32-bit word at `high`.
#[inline]
fn five_bits(block: &[u8], at: usize, high: usize) -> [i8; 32] {
    let (low, bits) = (nibbles(block, at), word32(block, high));
    std::array::from_fn(|i| low[i] | (((bits >> i) & 1) << 4) as i8)
}

/// Nibbles that choose from sixteen levels.
#[inline]
fn levels(block: &[u8], at: usize, levels: &[i8; 16]) -> [i8; 32] {
    nibbles(block, at).map(|nibble| levels[nibble as usize])
}

impl Format32<{ q4_1::BYTES }> for Q4With1 {
    fn codes(block: &[u8; q4_1::BYTES], _run: usize) -> [i8; 32] {
        nibbles(block, q4_1::QUANTS)
    }

    fn minimum(block: &[u8; q4_1::BYTES]) -> Option<f32> {
        Some(half_at(block, q4_1::MINIMUM))
    }
}

impl Format32<{ q5_0::BYTES }> for Q5With0 {
    fn codes(block: &[u8; q5_0::BYTES], _run: usize) -> [i8; 32] {
        five_bits(block, q5_0::QUANTS, q5_0::HIGH_BITS)
    }

    fn zero(_block: &[u8; q5_0::BYTES]) -> i32 {
        q5_0::OFFSET
    }
}

impl Format32<{ q5_1::BYTES }> for Q5With1 {
    fn codes(block: &[u8; q5_1::BYTES], _run: usize) -> [i8; 32] {
        five_bits(block, q5_1::QUANTS, q5_1::HIGH_BITS)
    }

    fn minimum(block: &[u8; q5_1::BYTES]) -> Option<f32> {
        Some(half_at(block, q5_1::MINIMUM))
    }
}

impl Format32<{ iq4_nl::BYTES }> for Iq4Nl {
    fn codes(block: &[u8; iq4_nl::BYTES], _run: usize) -> [i8; 32] {
        levels(block, iq4_nl::QUANTS, &iq4_nl::LEVELS)
    }
}

impl Format32<{ mxfp4::BYTES }> for Mxfp4 {
    fn codes(block: &[u8; mxfp4::BYTES], _run: usize) -> [i8; 32] {
        levels(block, mxfp4::QUANTS, &mxfp4::LEVELS)
    }

    fn scale(block: &[u8; mxfp4::BYTES]) -> f32 {
        mxfp4::scale(block[0])
    }
}

impl Format32<{ nf4::BYTES }> for Nf4 {
    const RUNS: usize = 2;

    fn codes(block: &[u8; nf4::BYTES], run: usize) -> [i8; 32] {
        levels(block, nf4::QUANTS + 16 * run, &nf4::LEVELS)
    }
}

impl Format32<{ int4_group128::BYTES }> for Int4Group128 {
    const RUNS: usize = 4;

    fn codes(block: &[u8; int4_group128::BYTES], run: usize) -> [i8; 32] {
        nibbles(block, int4_group128::QUANTS + 16 * run)
    }

    fn zero(_block: &[u8; int4_group128::BYTES]) -> i32 {
        int4_group128::OFFSET
    }
}

impl Format32<{ int4_zero32::BYTES }> for Int4Zero32 {
    fn codes(block: &[u8; int4_zero32::BYTES], _run: usize) -> [i8; 32] {
        nibbles(block, int4_zero32::QUANTS)
    }

    fn zero(block: &[u8; int4_zero32::BYTES]) -> i32 {
        i32::from(block[int4_zero32::ZERO])
    }
}
