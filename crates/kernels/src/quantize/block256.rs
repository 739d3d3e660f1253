//! Super-blocks of 256 numbers: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K and IQ4_XS.

use super::block32::{self, IQ4_LEVELS};
use super::grid::{Even, Uneven};
use super::rows::WholeBlocks;
use super::super_blocks::SuperBlocks;
use super::symmetric::Tries;
use super::{affine_scales, signed_scales};
use crate::blocks::{SUPER_BLOCK, iq4_xs, pack_scales, q2_k, q3_k, q4_k, q5_k, q6_k};

const Q2_K: affine_scales::Scheme =
    affine_scales::Scheme { highest_level: 3.0, highest_factor: 15.0, inset: 0.5, measured: 5 };
const Q4_K: affine_scales::Scheme =
    affine_scales::Scheme { highest_level: 15.0, highest_factor: 63.0, inset: 1.0, measured: 3 };
const Q5_K: affine_scales::Scheme = affine_scales::Scheme { highest_level: 31.0, ..Q4_K };
const Q3_K: signed_scales::Scheme<Even> = signed_scales::Scheme {
    grid: Even::bits(3),
    lowest_factor: -32.0,
    tries: Tries { from: 1.15, to: 0.5, count: 11, refits: 2 },
};
const Q6_K: signed_scales::Scheme<Even> = signed_scales::Scheme {
    grid: Even::bits(6),
    lowest_factor: -128.0,
    tries: Tries { from: 1.03, to: 0.905, count: 9, refits: 1 },
};
const IQ4_XS: signed_scales::Scheme<Uneven> = signed_scales::Scheme {
    grid: IQ4_LEVELS,
    lowest_factor: -32.0,
    tries: Tries { from: 1.06, to: 0.7, count: 9, refits: 2 },
};

/// Writes every block: zeros, or what a search found for it. A macro, because a function that is passed as a value would not
/// be compiled for the instruction set of its caller.
macro_rules! every_block {
    ($rows:ident, $search:ident.quantize, $blocks:literal, $write:ident) => {
        for first in (0..$rows.values.len()).step_by($blocks) {
            let coded: [_; $blocks] = $search.quantize(SuperBlocks::<{ 16 * $blocks }, $blocks>::read(&$rows, first));
            for (coded, out) in coded.iter().zip(&mut $rows.out[first..]) {
                out.fill(0);
                if let Some(coded) = coded {
                    $write(coded, out);
                }
            }
        }
    };
}

/// Q2_K.
#[inline(always)]
pub(super) fn quantize_q2_k(rows: WholeBlocks<'_, SUPER_BLOCK, { q2_k::BYTES }>) {
    every_block!(rows, Q2_K.quantize, 1, write_q2_k);
}

fn write_q2_k(coded: &affine_scales::Coded<16>, out: &mut [u8; q2_k::BYTES]) {
    for i in 0..16 {
        out[i] = coded.steps[i] | (coded.minima[i] << 4);
    }
    pack_pairs(&coded.levels, &mut out[q2_k::QUANTS..q2_k::SCALE]);
    out[q2_k::SCALE..q2_k::MINIMUM_SCALE].copy_from_slice(&coded.step_scale);
    out[q2_k::MINIMUM_SCALE..].copy_from_slice(&coded.minimum_scale);
}

/// Q3_K.
#[inline(always)]
pub(super) fn quantize_q3_k(rows: WholeBlocks<'_, SUPER_BLOCK, { q3_k::BYTES }>) {
    every_block!(rows, Q3_K.quantize, 1, write_q3_k);
}

fn write_q3_k(coded: &signed_scales::Coded<16>, out: &mut [u8; q3_k::BYTES]) {
    pack_high_bits(&coded.levels, 2, &mut out[..q3_k::QUANTS]);
    pack_pairs(&coded.levels, &mut out[q3_k::QUANTS..q3_k::SCALES]);
    let factors = coded.factors.map(|factor| (i16::from(factor) + q3_k::SCALE_OFFSET) as u8);
    for i in 0..8 {
        out[q3_k::SCALES + i] = (factors[i] & 15) | ((factors[i + 8] & 15) << 4);
    }
    for i in 0..4 {
        out[q3_k::SCALES + 8 + i] = (0..4).fold(0, |bits, four| bits | ((factors[4 * four + i] >> 4) << (2 * four)));
    }
    out[q3_k::SCALE..].copy_from_slice(&coded.scale);
}

/// Q4_K.
#[inline(always)]
pub(super) fn quantize_q4_k(rows: WholeBlocks<'_, SUPER_BLOCK, { q4_k::BYTES }>) {
    every_block!(rows, Q4_K.quantize, 2, write_q4_k);
}

fn write_q4_k(coded: &affine_scales::Coded<8>, out: &mut [u8; q4_k::BYTES]) {
    write_header(coded, &mut out[..q4_k::QUANTS]);
    pack_halves(&coded.levels, &mut out[q4_k::QUANTS..]);
}

/// Q5_K.
#[inline(always)]
pub(super) fn quantize_q5_k(rows: WholeBlocks<'_, SUPER_BLOCK, { q5_k::BYTES }>) {
    every_block!(rows, Q5_K.quantize, 2, write_q5_k);
}

fn write_q5_k(coded: &affine_scales::Coded<8>, out: &mut [u8; q5_k::BYTES]) {
    write_header(coded, &mut out[..q5_k::HIGH_BITS]);
    pack_high_bits(&coded.levels, 4, &mut out[q5_k::HIGH_BITS..q5_k::QUANTS]);
    pack_halves(&coded.levels, &mut out[q5_k::QUANTS..]);
}

/// Q6_K.
#[inline(always)]
pub(super) fn quantize_q6_k(rows: WholeBlocks<'_, SUPER_BLOCK, { q6_k::BYTES }>) {
    every_block!(rows, Q6_K.quantize, 1, write_q6_k);
}

fn write_q6_k(coded: &signed_scales::Coded<16>, out: &mut [u8; q6_k::BYTES]) {
    for (half, levels) in coded.levels.as_chunks::<128>().0.iter().enumerate() {
        for i in 0..64 {
            out[64 * half + i] = (levels[i] & 15) | ((levels[i + 64] & 15) << 4);
        }
    }
    pack_pairs(&coded.levels.map(|level| level >> 4), &mut out[q6_k::HIGH_BITS..q6_k::SCALES]);
    out[q6_k::SCALES..q6_k::SCALE].copy_from_slice(&coded.factors.map(|factor| factor as u8));
    out[q6_k::SCALE..].copy_from_slice(&coded.scale);
}

/// IQ4_XS.
#[inline(always)]
pub(super) fn quantize_iq4_xs(rows: WholeBlocks<'_, SUPER_BLOCK, { iq4_xs::BYTES }>) {
    every_block!(rows, IQ4_XS.quantize, 2, write_iq4_xs);
}

fn write_iq4_xs(coded: &signed_scales::Coded<8>, out: &mut [u8; iq4_xs::BYTES]) {
    let factors = coded.factors.map(|factor| (i16::from(factor) + iq4_xs::SCALE_OFFSET) as u8);
    let high = factors.iter().rev().fold(0_u16, |bits, factor| (bits << 2) | u16::from(factor >> 4));
    out[..iq4_xs::HIGH_SCALES].copy_from_slice(&coded.scale);
    out[iq4_xs::HIGH_SCALES..iq4_xs::LOW_SCALES].copy_from_slice(&high.to_le_bytes());
    for i in 0..4 {
        out[iq4_xs::LOW_SCALES + i] = (factors[2 * i] & 15) | ((factors[2 * i + 1] & 15) << 4);
    }
    block32::pack_nibbles(&coded.levels, &mut out[iq4_xs::QUANTS..]);
}

/// The 16 bytes that Q4_K and Q5_K begin with.
fn write_header(coded: &affine_scales::Coded<8>, out: &mut [u8]) {
    out[..q4_k::MINIMUM_SCALE].copy_from_slice(&coded.step_scale);
    out[q4_k::MINIMUM_SCALE..q4_k::SCALES].copy_from_slice(&coded.minimum_scale);
    out[q4_k::SCALES..].copy_from_slice(&pack_scales(&coded.steps, &coded.minima));
}

/// Low nibbles of each 64 levels: the first 32 in the low half of a byte, the next in the high half.
fn pack_halves(levels: &[u8; SUPER_BLOCK], out: &mut [u8]) {
    for (levels, bytes) in levels.as_chunks::<64>().0.iter().zip(out.as_chunks_mut::<32>().0) {
        *bytes = std::array::from_fn(|i| (levels[i] & 15) | ((levels[i + 32] & 15) << 4));
    }
}

/// The lowest two bits of each 128 levels: bit pair `p` of byte `i` belongs to level `32 p + i`.
fn pack_pairs(levels: &[u8; SUPER_BLOCK], out: &mut [u8]) {
    for (levels, bytes) in levels.as_chunks::<128>().0.iter().zip(out.as_chunks_mut::<32>().0) {
        *bytes = std::array::from_fn(|i| (0..4).fold(0, |bits, p| bits | ((levels[32 * p + i] & 3) << (2 * p))));
    }
}

/// Bit `bit` of every level: bit `b` of byte `i` belongs to level `32 b + i`.
fn pack_high_bits(levels: &[u8; SUPER_BLOCK], bit: u32, out: &mut [u8]) {
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = (0..8).fold(0, |bits, b| bits | (((levels[32 * b + i] >> bit) & 1) << b));
    }
}
