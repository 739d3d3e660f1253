//! Blocks of 32 with one f16 scale: Q8_0 and Q4_0.

use super::half_grid::HalfGrid;
use super::symmetric::{Levels, Symmetric, largest};
use super::weights::weigh;
use crate::blocks::{SMALL_BLOCK, q4_0, q8_0};

/// Q8_0: the largest magnitude becomes 127. At 8 bits a search gains nothing that can be measured.
pub(super) fn quantize_q8_0(values: &[f32; SMALL_BLOCK], out: &mut [u8; q8_0::BYTES]) {
    out.fill(0);
    let mut values = *values;
    let Some(grid) = HalfGrid::normalise(&mut values) else { return };
    let scale = grid.nearest(largest(values.into_iter()).abs() / 127.0);
    if scale == 0.0 {
        return;
    }
    out[..q8_0::QUANTS].copy_from_slice(&grid.bytes(scale));
    for (byte, value) in out[q8_0::QUANTS..].iter_mut().zip(values) {
        *byte = (value / scale).round().clamp(-127.0, 127.0) as i8 as u8;
    }
}

/// Q4_0: tries scales of both signs, because the level −8 has no positive twin, and refits each by least squares.
pub(super) fn quantize_q4_0(values: &[f32; SMALL_BLOCK], importance: &[f32; SMALL_BLOCK], out: &mut [u8; q4_0::BYTES]) {
    const LEVELS: Levels = Levels { lowest: -8.0, highest: 7.0 };
    out.fill(0);
    // Level 8 is the number zero.
    out[q4_0::QUANTS..].fill(0x88);
    let mut values = *values;
    let Some(grid) = HalfGrid::normalise(&mut values) else { return };
    let weights = weigh(importance);
    let block = Symmetric { values: &values, weights: &weights, levels: LEVELS };
    let largest = largest(values.into_iter());
    let mut best = (block.measure(0.0).error, 0.0);
    for divisor in divisors() {
        let mut step = grid.nearest(largest / divisor);
        for _ in 0..3 {
            let fit = block.measure(step);
            if fit.error < best.0 {
                best = (fit.error, step);
            }
            let refitted = grid.nearest(fit.best_step());
            if refitted == step {
                break;
            }
            step = refitted;
        }
    }
    let step = best.1;
    out[..q4_0::QUANTS].copy_from_slice(&grid.bytes(step));
    let levels = block.assign(step);
    for (i, byte) in out[q4_0::QUANTS..].iter_mut().enumerate() {
        let nibble = |level: f32| (level as i32 + q4_0::OFFSET) as u8;
        *byte = nibble(levels[i]) | (nibble(levels[i + SMALL_BLOCK / 2]) << 4);
    }
}

/// Into how many steps to divide the largest magnitude; negative ones let it use the level −8.
fn divisors() -> impl Iterator<Item = f32> {
    let steps = |first: f32, last: f32| (0..=12).map(move |i| first + (last - first) * i as f32 / 12.0);
    steps(-9.0, -6.0).chain(steps(8.0, 5.5))
}
