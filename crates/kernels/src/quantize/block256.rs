//! Q4_K and Q5_K: eight sub-blocks of 32 whose steps and minima are 6-bit multiples of two shared f16 scales.

use super::affine::{Affine, Fit, SUB_BLOCK};
use super::half_grid::HalfGrid;
use super::symmetric::round;
use super::weights::weigh;
use crate::blocks::{SUPER_BLOCK, pack_scales, q4_k, q5_k};

const GROUPS: usize = 8;
const LARGEST_FACTOR: f32 = 63.0;

/// The two f16 scales of a block, on normalised numbers.
#[derive(Clone, Copy, PartialEq)]
struct Scales {
    step: f32,
    minimum: f32,
}

/// The 6-bit step and minimum of a sub-block with what they cost.
#[derive(Clone, Copy, Default)]
struct Factors {
    step: f32,
    minimum: f32,
    fit: Fit,
}

/// A whole block's choice.
#[derive(Clone, Copy)]
struct Choice {
    scales: Scales,
    factors: [Factors; GROUPS],
    error: f32,
}

/// Quantises one Q4_K block.
pub(super) fn quantize_q4_k(values: &[f32; SUPER_BLOCK], importance: &[f32; SUPER_BLOCK], out: &mut [u8; q4_k::BYTES]) {
    let (header, levels) = quantize_super_block(values, importance, 15.0);
    out[..q4_k::QUANTS].copy_from_slice(&header);
    pack_nibbles(&levels, &mut out[q4_k::QUANTS..]);
}

/// Quantises one Q5_K block.
pub(super) fn quantize_q5_k(values: &[f32; SUPER_BLOCK], importance: &[f32; SUPER_BLOCK], out: &mut [u8; q5_k::BYTES]) {
    let (header, levels) = quantize_super_block(values, importance, 31.0);
    out[..q5_k::HIGH_BITS].copy_from_slice(&header);
    pack_nibbles(&levels, &mut out[q5_k::QUANTS..]);
    for (i, byte) in out[q5_k::HIGH_BITS..q5_k::QUANTS].iter_mut().enumerate() {
        *byte = (0..GROUPS).fold(0, |bits, group| bits | ((levels[SUB_BLOCK * group + i] >> 4) << group));
    }
}

fn pack_nibbles(levels: &[u8; SUPER_BLOCK], out: &mut [u8]) {
    for (levels, bytes) in levels.as_chunks::<64>().0.iter().zip(out.as_chunks_mut::<32>().0) {
        for i in 0..32 {
            bytes[i] = (levels[i] & 15) | ((levels[i + 32] & 15) << 4);
        }
    }
}

/// The 16 bytes of header and the levels of a block, levels going from zero to `highest`.
fn quantize_super_block(
    values: &[f32; SUPER_BLOCK],
    importance: &[f32; SUPER_BLOCK],
    highest: f32,
) -> ([u8; 16], [u8; SUPER_BLOCK]) {
    let mut header = [0; 16];
    let mut levels = [0; SUPER_BLOCK];
    let mut values = *values;
    let Some(grid) = HalfGrid::normalise(&mut values) else { return (header, levels) };
    let weights = weigh(importance);
    let (numbers, weights) = (values.as_chunks().0, weights.as_chunks().0);
    let groups: [Affine; GROUPS] = std::array::from_fn(|i| Affine::new(&numbers[i], &weights[i], highest));
    let wanted: [Fit; GROUPS] = std::array::from_fn(|i| groups[i].search());
    let choice = search_scales(&groups, &wanted, grid);

    for (i, (group, levels)) in groups.iter().zip(levels.as_chunks_mut().0).enumerate() {
        let factors = &choice.factors[i];
        *levels = group.assign(choice.scales.step * factors.step, choice.scales.minimum * factors.minimum);
    }
    header[..2].copy_from_slice(&grid.bytes(choice.scales.step));
    header[q4_k::MINIMUM_SCALE..][..2].copy_from_slice(&grid.bytes(choice.scales.minimum));
    let steps = choice.factors.map(|factors| factors.step as u8);
    let minima = choice.factors.map(|factors| factors.minimum as u8);
    header[q4_k::SCALES..].copy_from_slice(&pack_scales(&steps, &minima));
    (header, levels)
}

/// Ranks pairs of f16 scales by a prediction, then measures and refits the most promising.
fn search_scales(groups: &[Affine; GROUPS], wanted: &[Fit; GROUPS], grid: HalfGrid) -> Choice {
    let largest_step = wanted.iter().fold(0.0_f32, |largest, fit| largest.max(fit.step));
    let largest_minimum = wanted.iter().fold(0.0_f32, |largest, fit| largest.max(fit.minimum));
    let divisors = || (0..DIVISORS).map(|i| LARGEST_FACTOR + 1.0 - i as f32);
    let mut candidates = Vec::with_capacity(DIVISORS * DIVISORS);
    for step in divisors().map(|divisor| grid.nearest(largest_step / divisor)) {
        for minimum in divisors().map(|divisor| grid.nearest(largest_minimum / divisor)) {
            let scales = Scales { step, minimum };
            candidates.push((predict(groups, wanted, scales), scales));
        }
    }
    candidates.sort_by(|a, b| a.0.total_cmp(&b.0));
    candidates.dedup_by(|a, b| a.1 == b.1);
    let mut best = choose(groups, wanted, Scales { step: 0.0, minimum: 0.0 });
    for &(_, scales) in candidates.iter().take(MEASURED) {
        let mut scales = scales;
        for _ in 0..3 {
            let choice = choose(groups, wanted, scales);
            let refitted = refit(groups, &choice, grid);
            if choice.error < best.error {
                best = choice;
            }
            if refitted == scales {
                break;
            }
            scales = refitted;
        }
    }
    best
}

const DIVISORS: usize = 20;
const MEASURED: usize = 6;

/// What a pair of scales would cost if no level changed: a quadratic form around each sub-block's best fit.
fn predict(groups: &[Affine; GROUPS], wanted: &[Fit; GROUPS], scales: Scales) -> f32 {
    let inverse_step = if scales.step > 0.0 { 1.0 / scales.step } else { 0.0 };
    let inverse_minimum = if scales.minimum > 0.0 { 1.0 / scales.minimum } else { 0.0 };
    let mut error = 0.0;
    for (group, fit) in groups.iter().zip(wanted) {
        let factor = round((fit.step * inverse_step).min(LARGEST_FACTOR));
        let step_change = scales.step * factor - fit.step;
        let minimum = (fit.minimum + fit.level / group.weight * step_change).max(0.0);
        let factor = round((minimum * inverse_minimum).min(LARGEST_FACTOR));
        let minimum_change = scales.minimum * factor - fit.minimum;
        error += fit.error + fit.level_square * step_change * step_change
            - 2.0 * fit.level * step_change * minimum_change
            + group.weight * minimum_change * minimum_change;
    }
    error
}

/// The best 6-bit factors of every sub-block for given scales.
fn choose(groups: &[Affine; GROUPS], wanted: &[Fit; GROUPS], scales: Scales) -> Choice {
    let factors: [Factors; GROUPS] = std::array::from_fn(|i| choose_factors(&groups[i], &wanted[i], scales));
    let error = factors.iter().map(|factors| factors.fit.error).sum();
    Choice { scales, factors, error }
}

fn choose_factors(group: &Affine, wanted: &Fit, scales: Scales) -> Factors {
    let nearest = |value: f32, scale: f32| if scale > 0.0 { round((value / scale).min(LARGEST_FACTOR)) } else { 0.0 };
    let centre = nearest(wanted.step, scales.step);
    let mut best = Factors { step: 0.0, minimum: 0.0, fit: group.measure(0.0, 0.0) };
    for step_factor in [centre, centre - 1.0, centre + 1.0] {
        if !(0.0..=LARGEST_FACTOR).contains(&step_factor) {
            continue;
        }
        let step = scales.step * step_factor;
        let mut factor = nearest(group.best_minimum(step, wanted.level), scales.minimum);
        for _ in 0..3 {
            let fit = group.measure(step, scales.minimum * factor);
            if fit.error < best.fit.error {
                best = Factors { step: step_factor, minimum: factor, fit };
            }
            let refitted = nearest(group.best_minimum(step, fit.level), scales.minimum);
            if refitted == factor {
                break;
            }
            factor = refitted;
        }
    }
    best
}

/// The least-squares scales for the factors and levels of a choice, on the f16 grid.
fn refit(groups: &[Affine; GROUPS], choice: &Choice, grid: HalfGrid) -> Scales {
    let (mut steps, mut cross, mut minima, mut step_value, mut minimum_value) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (group, factors) in groups.iter().zip(&choice.factors) {
        steps += factors.step * factors.step * factors.fit.level_square;
        cross += factors.step * factors.minimum * factors.fit.level;
        minima += factors.minimum * factors.minimum * group.weight;
        step_value += factors.step * factors.fit.value_level;
        minimum_value += factors.minimum * group.value;
    }
    let determinant = steps * minima - cross * cross;
    if determinant <= 1e-6 * steps * minima {
        return choice.scales;
    }
    let step = (minima * step_value - cross * minimum_value) / determinant;
    let minimum = (cross * step_value - steps * minimum_value) / determinant;
    if step <= 0.0 || minimum <= 0.0 {
        return choice.scales;
    }
    Scales { step: grid.nearest(step), minimum: grid.nearest(minimum) }
}
