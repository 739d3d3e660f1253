//! Blocks with one f16 scale: Q8_0, Q4_0, Q5_0, IQ4_NL, NF4 and INT4_G128.

use super::grid::{Even, Grid, Uneven};
use super::half_grid::HalfGrid;
use super::symmetric::{Symmetric, Tries, largest};
use super::weights::weigh;
use crate::blocks::{SMALL_BLOCK, int4_group128, iq4_nl, nf4, q4_0, q5_0, q8_0};

/// The levels of IQ4_NL and IQ4_XS.
pub(super) const IQ4_LEVELS: Uneven = Uneven::new(&iq4_nl::LEVELS);
const NF4_LEVELS: Uneven = Uneven::new(&nf4::LEVELS);

const TRIES: Tries = Tries { from: 1.125, to: 0.75, count: 13, refits: 2 };
/// Among more numbers the largest is more of an exception.
const WIDE_TRIES: Tries = Tries { from: 1.1, to: 0.55, count: 19, refits: 2 };

/// Q8_0: the largest magnitude becomes 127. At 8 bits a search gains nothing that can be measured.
pub(super) fn quantize_q8_0(values: &[f32; SMALL_BLOCK], out: &mut [u8; q8_0::BYTES]) {
    out.fill(0);
    let mut values = *values;
    let Some(half) = HalfGrid::normalise(&mut values) else { return };
    let scale = half.nearest(largest(values.into_iter()).abs() / 127.0);
    if scale == 0.0 {
        return;
    }
    out[..q8_0::QUANTS].copy_from_slice(&half.bytes(scale));
    for (byte, value) in out[q8_0::QUANTS..].iter_mut().zip(values) {
        *byte = (value / scale).round().clamp(-127.0, 127.0) as i8 as u8;
    }
}

/// Q4_0.
pub(super) fn quantize_q4_0(values: &[f32; SMALL_BLOCK], importance: &[f32; SMALL_BLOCK], out: &mut [u8; q4_0::BYTES]) {
    let (scale, levels) = one_scale(Even::bits(4), TRIES, values, importance);
    out[..q4_0::QUANTS].copy_from_slice(&scale);
    pack_nibbles(&levels, &mut out[q4_0::QUANTS..]);
}

/// Q5_0.
pub(super) fn quantize_q5_0(values: &[f32; SMALL_BLOCK], importance: &[f32; SMALL_BLOCK], out: &mut [u8; q5_0::BYTES]) {
    let (scale, levels) = one_scale(Even::bits(5), TRIES, values, importance);
    let high = levels.iter().rev().fold(0_u32, |bits, level| (bits << 1) | u32::from(level >> 4));
    out[..q5_0::HIGH_BITS].copy_from_slice(&scale);
    out[q5_0::HIGH_BITS..q5_0::QUANTS].copy_from_slice(&high.to_le_bytes());
    pack_nibbles(&levels, &mut out[q5_0::QUANTS..]);
}

/// IQ4_NL.
pub(super) fn quantize_iq4_nl(
    values: &[f32; SMALL_BLOCK],
    importance: &[f32; SMALL_BLOCK],
    out: &mut [u8; iq4_nl::BYTES],
) {
    let (scale, levels) = one_scale(IQ4_LEVELS, TRIES, values, importance);
    out[..iq4_nl::QUANTS].copy_from_slice(&scale);
    pack_nibbles(&levels, &mut out[iq4_nl::QUANTS..]);
}

/// NF4.
pub(super) fn quantize_nf4(values: &[f32; 64], importance: &[f32; 64], out: &mut [u8; nf4::BYTES]) {
    let (scale, levels) = one_scale(NF4_LEVELS, WIDE_TRIES, values, importance);
    out[..nf4::QUANTS].copy_from_slice(&scale);
    pack_nibbles(&levels, &mut out[nf4::QUANTS..]);
}

/// INT4_G128.
pub(super) fn quantize_int4_group128(
    values: &[f32; 128],
    importance: &[f32; 128],
    out: &mut [u8; int4_group128::BYTES],
) {
    let (scale, levels) = one_scale(Even::bits(4), WIDE_TRIES, values, importance);
    out[..int4_group128::QUANTS].copy_from_slice(&scale);
    pack_nibbles(&levels, &mut out[int4_group128::QUANTS..]);
}

/// The bytes of the best f16 scale, and the levels counted from the lowest.
fn one_scale<G: Grid, const E: usize>(
    grid: G,
    tries: Tries,
    values: &[f32; E],
    importance: &[f32; E],
) -> ([u8; 2], [u8; E]) {
    let mut values = *values;
    let Some(half) = HalfGrid::normalise(&mut values) else { return ([0; 2], [grid.index(grid.nearest(0.0)); E]) };
    let weights = weigh(importance);
    let block = Symmetric { values: &values, weights: &weights, grid };
    let (step, _) = block.search(tries, |step| half.nearest(step));
    (half.bytes(step), block.assign(step))
}

/// Runs of 32 levels: byte `i` of a run holds element `i` in its low nibble and `i + 16` in its high one.
pub(super) fn pack_nibbles(levels: &[u8], out: &mut [u8]) {
    for (levels, bytes) in levels.as_chunks::<32>().0.iter().zip(out.as_chunks_mut::<16>().0) {
        *bytes = std::array::from_fn(|i| (levels[i] & 15) | ((levels[i + 16] & 15) << 4));
    }
}
