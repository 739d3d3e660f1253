//! Q6_K: sixteen sub-blocks of 16 with signed 8-bit scales over one f16.

use super::half_grid::HalfGrid;
use super::symmetric::{Fit, Levels, Symmetric, largest, round};
use super::weights::weigh;
use crate::blocks::{SUPER_BLOCK, q6_k};

const LEVELS: Levels = Levels { lowest: -32.0, highest: 31.0 };
const GROUPS: usize = 16;
type Group<'a> = Symmetric<'a, 16>;

/// A whole choice of scales with its error.
#[derive(Clone, Copy)]
struct Choice {
    scale: f32,
    scales: [i8; GROUPS],
    error: f32,
    refitted: f32,
}

/// Quantises one block: best step per sub-block, then the f16 scale on whose grid those steps fall best.
pub(super) fn quantize_q6_k(values: &[f32; SUPER_BLOCK], importance: &[f32; SUPER_BLOCK], out: &mut [u8; q6_k::BYTES]) {
    out.fill(0);
    let mut values = *values;
    let Some(grid) = HalfGrid::normalise(&mut values) else { return };
    let weights = weigh(importance);
    let numbers = values.as_chunks::<16>().0;
    let weights = weights.as_chunks::<16>().0;
    let groups: [Group; GROUPS] =
        std::array::from_fn(|i| Symmetric { values: &numbers[i], weights: &weights[i], levels: LEVELS });
    let wanted: [(f32, Fit); GROUPS] = std::array::from_fn(|i| search_step(&groups[i]));
    let choice = search_scale(&groups, &wanted, grid);
    write(&groups, &choice, grid, out);
}

/// The best step of one sub-block: both signs, because the level −32 has no positive twin.
fn search_step(group: &Group) -> (f32, Fit) {
    let largest = largest(group.values.iter().copied());
    let mut best = (0.0, group.measure(0.0));
    let tries = (0..=16).flat_map(|i| [-(33.0 - i as f32 * 0.25), 32.0 - i as f32 * 0.25]);
    for divisor in tries {
        let mut step = largest / divisor;
        for _ in 0..2 {
            let fit = group.measure(step);
            if fit.error < best.1.error {
                best = (step, fit);
            }
            step = fit.best_step();
        }
    }
    best
}

/// Tries scales that put the largest step on different points of the 8-bit grid, then refits the best ones.
fn search_scale(groups: &[Group; GROUPS], wanted: &[(f32, Fit); GROUPS], grid: HalfGrid) -> Choice {
    let largest = largest(wanted.iter().map(|(step, _)| *step));
    let mut candidates: Vec<(f32, f32)> = (0..48)
        .map(|i| grid.nearest(largest / (-128.0 + i as f32)))
        .filter(|scale| *scale != 0.0)
        .map(|scale| (predict(wanted, scale), scale))
        .collect();
    candidates.sort_by(|a, b| a.0.total_cmp(&b.0));
    candidates.dedup_by(|a, b| a.1 == b.1);
    let mut best = choose(groups, wanted, 0.0);
    for &(_, scale) in candidates.iter().take(6) {
        let mut scale = scale;
        for _ in 0..3 {
            let choice = choose(groups, wanted, scale);
            if choice.error < best.error {
                best = choice;
            }
            let refitted = grid.nearest(choice.refitted);
            if refitted == scale {
                break;
            }
            scale = refitted;
        }
    }
    best
}

/// What the scale would cost if no level changed: each error grows with the square of the step's distance.
fn predict(wanted: &[(f32, Fit); GROUPS], scale: f32) -> f32 {
    wanted
        .iter()
        .map(|(step, fit)| {
            let distance = step - scale * round((step / scale).clamp(-128.0, 127.0));
            fit.error + fit.level_square * distance * distance
        })
        .sum()
}

/// The best 8-bit scale of every sub-block for a given f16 scale.
fn choose(groups: &[Group; GROUPS], wanted: &[(f32, Fit); GROUPS], scale: f32) -> Choice {
    let mut choice = Choice { scale, scales: [0; GROUPS], error: 0.0, refitted: 0.0 };
    let (mut square, mut product) = (0.0, 0.0);
    for (i, (group, (step, _))) in groups.iter().zip(wanted).enumerate() {
        let centre = if scale == 0.0 { 0.0 } else { round((step / scale).clamp(-128.0, 127.0)) };
        let mut best = (0.0, group.measure(0.0));
        for offset in [0.0, -1.0, 1.0, -2.0, 2.0] {
            let factor = (centre + offset).clamp(-128.0, 127.0);
            let fit = group.measure(scale * factor);
            if fit.error < best.1.error {
                best = (factor, fit);
            }
        }
        let (factor, fit) = best;
        choice.scales[i] = factor as i8;
        choice.error += fit.error;
        square += factor * factor * fit.level_square;
        product += factor * fit.value_level;
    }
    choice.refitted = if square > 0.0 { product / square } else { 0.0 };
    choice
}

fn write(groups: &[Group; GROUPS], choice: &Choice, grid: HalfGrid, out: &mut [u8; q6_k::BYTES]) {
    let mut levels = [0_u8; SUPER_BLOCK];
    for (i, (group, levels)) in groups.iter().zip(levels.as_chunks_mut::<16>().0).enumerate() {
        let step = choice.scale * f32::from(choice.scales[i]);
        *levels = group.assign(step).map(|level| (level as i32 + q6_k::OFFSET) as u8);
        out[q6_k::SCALES + i] = choice.scales[i] as u8;
    }
    out[q6_k::SCALE..].copy_from_slice(&grid.bytes(choice.scale));
    for (half, levels) in levels.as_chunks::<128>().0.iter().enumerate() {
        for i in 0..32 {
            let quarter = |number: usize| levels[32 * number + i];
            out[64 * half + i] = (quarter(0) & 15) | ((quarter(2) & 15) << 4);
            out[64 * half + 32 + i] = (quarter(1) & 15) | ((quarter(3) & 15) << 4);
            out[q6_k::HIGH_BITS + 32 * half + i] =
                (quarter(0) >> 4) | ((quarter(1) >> 4) << 2) | ((quarter(2) >> 4) << 4) | ((quarter(3) >> 4) << 6);
        }
    }
}
