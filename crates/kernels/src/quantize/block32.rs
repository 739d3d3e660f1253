//! Blocks with one f16 scale: Q8_0, Q4_0, Q5_0, IQ4_NL, NF4 and INT4_G128.

use super::grid::{Even, Grid, Uneven};
use super::groups::{Groups, LANES};
use super::half_grid::{HalfGrid, HalfGrids, magnitude};
use super::rows::WholeBlocks;
use super::symmetric::{Symmetric, Tries};
use super::weights::weigh;
use crate::blocks::{SMALL_BLOCK, int4_group128, iq4_nl, nf4, q4_0, q5_0, q8_0};

/// The levels of IQ4_NL and IQ4_XS.
pub(super) const IQ4_LEVELS: Uneven = Uneven::new(&iq4_nl::LEVELS);
const NF4_LEVELS: Uneven = Uneven::new(&nf4::LEVELS);

const TRIES: Tries = Tries { from: 1.125, to: 0.75, count: 13, refits: 2 };
/// Among more numbers the largest is more of an exception.
const WIDE_TRIES: Tries = Tries { from: 1.1, to: 0.55, count: 19, refits: 2 };

/// The greatest float below a half. A half itself would lift this number to one.
const BELOW_HALF: f32 = 0.499_999_97;

/// A float this large has no fractions, and its lowest bits count up from zero.
const SHIFT: f32 = 12_582_912.0;

/// Q8_0: the largest magnitude becomes 127. At 8 bits a search gains nothing that can be measured.
#[inline(always)]
pub(super) fn quantize_q8_0(rows: WholeBlocks<'_, SMALL_BLOCK, { q8_0::BYTES }>) {
    for (values, out) in rows.values.iter().zip(rows.out) {
        quantize_block_q8_0(values, out);
    }
}

#[inline(always)]
fn quantize_block_q8_0(values: &[f32; SMALL_BLOCK], out: &mut [u8; q8_0::BYTES]) {
    out.fill(0);
    let mut values = *values;
    let Some(half) = HalfGrid::normalise(&mut values) else { return };
    let scale = half.nearest(magnitude(&values) / 127.0);
    if scale == 0.0 {
        return;
    }
    out[..q8_0::QUANTS].copy_from_slice(&half.bytes(scale));
    for (byte, value) in out[q8_0::QUANTS..].iter_mut().zip(values) {
        let whole = whole(value / scale).clamp(-127.0, 127.0);
        // The lowest byte of the sum is the integer: unlike a cast, this needs no case for what is not a number.
        *byte = (whole + SHIFT).to_bits() as u8;
    }
}

/// The nearest whole number, halves away from zero: the C library's function is not right next to a half on every system.
#[inline(always)]
fn whole(value: f32) -> f32 {
    (value + BELOW_HALF.copysign(value)).trunc()
}

/// Q4_0.
#[inline(always)]
pub(super) fn quantize_q4_0(rows: WholeBlocks<'_, SMALL_BLOCK, { q4_0::BYTES }>) {
    one_scale(Even::bits(4), TRIES, rows);
}

/// Q5_0.
#[inline(always)]
pub(super) fn quantize_q5_0(rows: WholeBlocks<'_, SMALL_BLOCK, { q5_0::BYTES }>) {
    one_scale(Even::bits(5), TRIES, rows);
}

/// IQ4_NL.
#[inline(always)]
pub(super) fn quantize_iq4_nl(rows: WholeBlocks<'_, SMALL_BLOCK, { iq4_nl::BYTES }>) {
    one_scale(IQ4_LEVELS, TRIES, rows);
}

/// NF4.
#[inline(always)]
pub(super) fn quantize_nf4(rows: WholeBlocks<'_, 64, { nf4::BYTES }>) {
    one_scale(NF4_LEVELS, WIDE_TRIES, rows);
}

/// INT4_G128.
#[inline(always)]
pub(super) fn quantize_int4_group128(rows: WholeBlocks<'_, 128, { int4_group128::BYTES }>) {
    one_scale(Even::bits(4), WIDE_TRIES, rows);
}

/// Writes blocks that have one f16 scale, with the best scale of each.
#[inline(always)]
fn one_scale<G: Grid, const E: usize, const B: usize>(grid: G, tries: Tries, rows: WholeBlocks<'_, E, B>) {
    let batches = rows.values.chunks(LANES).zip(rows.out.chunks_mut(LANES));
    for (batch, (values, out)) in batches.enumerate() {
        let mut weights = [[1.0; E]; LANES];
        for (at, weights) in weights.iter_mut().enumerate() {
            *weights = weigh(rows.importance.of_block(batch * LANES + at));
        }
        let mut groups: Groups<E> = Groups::of(values, &weights);
        let halves = HalfGrids::normalise(&mut groups);
        let blocks = Symmetric::new(groups, grid);
        let step = blocks.search(tries, &halves).step;
        let levels = blocks.assign(step);
        for (lane, out) in out.iter_mut().enumerate() {
            let mut own = [0; E];
            for at in 0..E {
                own[at] = levels[at][lane];
            }
            pack(halves.bytes(lane, step[lane]), &own, out);
        }
    }
}

/// The scale, the fifth bits of the levels where the format has them, and their nibbles.
fn pack<const E: usize>(scale: [u8; 2], levels: &[u8; E], out: &mut [u8]) {
    let (start, nibbles) = out.split_at_mut(out.len() - E / 2);
    let (scale_bytes, high_bits) = start.split_at_mut(scale.len());
    scale_bytes.copy_from_slice(&scale);
    for (byte, levels) in high_bits.iter_mut().zip(levels.as_chunks::<8>().0) {
        *byte = levels.iter().rev().fold(0, |bits, level| (bits << 1) | (level >> 4));
    }
    pack_nibbles(levels, nibbles);
}

/// Runs of 32 levels: byte `i` of a run holds element `i` in its low nibble and `i + 16` in its high one.
pub(super) fn pack_nibbles(levels: &[u8], out: &mut [u8]) {
    for (levels, bytes) in levels.as_chunks::<32>().0.iter().zip(out.as_chunks_mut::<16>().0) {
        *bytes = std::array::from_fn(|i| (levels[i] & 15) | ((levels[i + 16] & 15) << 4));
    }
}

#[cfg(test)]
mod tests {
    use super::whole;

    #[test]
    fn numbers_next_to_a_half_become_the_nearest_whole_ones() {
        for half in (0..=127).map(|number| number as f32 + 0.5) {
            for value in [half.next_down(), half, half.next_up()] {
                let expected = (f64::from(value) + 0.5).floor() as f32;
                assert_eq!([whole(value), whole(-value)], [expected, -expected], "{value}");
            }
        }
    }
}
