//! Super-blocks whose sub-blocks have whole factors for steps and minima over two f16 scales, as Q2_K, Q4_K and Q5_K.

use super::affine::{Affine, Fit};
use super::grid::round;
use super::half_grid::HalfGrid;
use super::weights::weigh;
use crate::blocks::SUPER_BLOCK;

/// What tells one such format from another.
#[derive(Clone, Copy)]
pub(super) struct Scheme {
    /// Levels go from zero to this.
    pub(super) highest_level: f32,
    /// Factors go from zero to this.
    pub(super) highest_factor: f32,
    /// How far the search for a sub-block's step and minimum goes inwards.
    pub(super) inset: f32,
    /// Pairs of f16 scales that are measured.
    pub(super) measured: usize,
}

/// A quantised super-block.
pub(super) struct Coded<const GROUPS: usize> {
    /// The bytes of the f16 scale of the steps.
    pub(super) step_scale: [u8; 2],
    /// The bytes of the f16 scale of the minima.
    pub(super) minimum_scale: [u8; 2],
    /// The factor of each sub-block's step.
    pub(super) steps: [u8; GROUPS],
    /// The factor of each sub-block's minimum.
    pub(super) minima: [u8; GROUPS],
    /// The levels.
    pub(super) levels: [u8; SUPER_BLOCK],
}

/// The two f16 scales of a block, on normalised numbers.
#[derive(Clone, Copy, PartialEq)]
struct Scales {
    step: f32,
    minimum: f32,
}

/// The factors of a sub-block with what they cost.
#[derive(Clone, Copy, Default)]
struct Factors {
    step: f32,
    minimum: f32,
    fit: Fit,
}

/// A whole block's choice.
#[derive(Clone, Copy)]
struct Choice<const GROUPS: usize> {
    scales: Scales,
    factors: [Factors; GROUPS],
    error: f32,
}

/// Divisors of the largest step, and of the largest minimum, that are ranked by a prediction.
const DIVISORS: u32 = 20;

impl Scheme {
    /// Quantises one block; `None` when every number becomes zero.
    pub(super) fn quantize<const GROUPS: usize, const N: usize>(
        &self,
        values: &[f32; SUPER_BLOCK],
        importance: &[f32; SUPER_BLOCK],
    ) -> Option<Coded<GROUPS>> {
        let mut values = *values;
        let half = HalfGrid::normalise(&mut values)?;
        let weights = weigh(importance);
        let (numbers, weights) = (values.as_chunks::<N>().0, weights.as_chunks::<N>().0);
        let groups: [Affine<N>; GROUPS] =
            std::array::from_fn(|i| Affine::new(&numbers[i], &weights[i], self.highest_level));
        let wanted = std::array::from_fn(|i| groups[i].search(self.inset));
        let choice = self.search_scales(&groups, &wanted, half);
        let mut levels = [0; SUPER_BLOCK];
        for ((group, factors), levels) in groups.iter().zip(&choice.factors).zip(levels.as_chunks_mut().0) {
            *levels = group.assign(choice.scales.step * factors.step, choice.scales.minimum * factors.minimum);
        }
        Some(Coded {
            step_scale: half.bytes(choice.scales.step),
            minimum_scale: half.bytes(choice.scales.minimum),
            steps: choice.factors.map(|factors| factors.step as u8),
            minima: choice.factors.map(|factors| factors.minimum as u8),
            levels,
        })
    }

    /// Ranks pairs of f16 scales by a prediction, then measures and refits the most promising.
    fn search_scales<const GROUPS: usize, const N: usize>(
        &self,
        groups: &[Affine<N>; GROUPS],
        wanted: &[Fit; GROUPS],
        half: HalfGrid,
    ) -> Choice<GROUPS> {
        let largest_step = wanted.iter().fold(0.0_f32, |largest, fit| largest.max(fit.step));
        let largest_minimum = wanted.iter().fold(0.0_f32, |largest, fit| largest.max(fit.minimum));
        let divisors = || (0..DIVISORS).map(|i| (self.highest_factor + 1.0) * (1.0 - i as f32 / 64.0));
        let mut candidates = Vec::with_capacity((DIVISORS * DIVISORS) as usize);
        for step in divisors().map(|divisor| half.nearest(largest_step / divisor)) {
            for minimum in divisors().map(|divisor| half.nearest(largest_minimum / divisor)) {
                let scales = Scales { step, minimum };
                candidates.push((self.predict(groups, wanted, scales), scales));
            }
        }
        candidates.sort_by(|a, b| a.0.total_cmp(&b.0));
        candidates.dedup_by(|a, b| a.1 == b.1);
        let mut best = self.choose(groups, wanted, Scales { step: 0.0, minimum: 0.0 });
        for &(_, scales) in candidates.iter().take(self.measured) {
            let mut scales = scales;
            for _ in 0..3 {
                let choice = self.choose(groups, wanted, scales);
                let refitted = refit(groups, &choice, half);
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

    /// What a pair of scales would cost if no level changed: a quadratic form around each sub-block's best fit.
    fn predict<const GROUPS: usize, const N: usize>(
        &self,
        groups: &[Affine<N>; GROUPS],
        wanted: &[Fit; GROUPS],
        scales: Scales,
    ) -> f32 {
        let inverse_step = if scales.step > 0.0 { 1.0 / scales.step } else { 0.0 };
        let inverse_minimum = if scales.minimum > 0.0 { 1.0 / scales.minimum } else { 0.0 };
        let mut error = 0.0;
        for (group, fit) in groups.iter().zip(wanted) {
            let factor = round((fit.step * inverse_step).min(self.highest_factor));
            let step_change = scales.step * factor - fit.step;
            let minimum = (fit.minimum + fit.level / group.weight * step_change).max(0.0);
            let factor = round((minimum * inverse_minimum).min(self.highest_factor));
            let minimum_change = scales.minimum * factor - fit.minimum;
            error += fit.error + fit.level_square * step_change * step_change
                - 2.0 * fit.level * step_change * minimum_change
                + group.weight * minimum_change * minimum_change;
        }
        error
    }

    /// The best factors of every sub-block for given scales.
    fn choose<const GROUPS: usize, const N: usize>(
        &self,
        groups: &[Affine<N>; GROUPS],
        wanted: &[Fit; GROUPS],
        scales: Scales,
    ) -> Choice<GROUPS> {
        let factors: [Factors; GROUPS] = std::array::from_fn(|i| self.choose_factors(&groups[i], &wanted[i], scales));
        let error = factors.iter().map(|factors| factors.fit.error).sum();
        Choice { scales, factors, error }
    }

    fn choose_factors<const N: usize>(&self, group: &Affine<N>, wanted: &Fit, scales: Scales) -> Factors {
        let nearest =
            |value: f32, scale: f32| if scale > 0.0 { round((value / scale).min(self.highest_factor)) } else { 0.0 };
        let centre = nearest(wanted.step, scales.step);
        let mut best = Factors { step: 0.0, minimum: 0.0, fit: group.measure(0.0, 0.0) };
        for step_factor in [centre, centre - 1.0, centre + 1.0] {
            if !(0.0..=self.highest_factor).contains(&step_factor) {
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
}

/// The least-squares scales for the factors and levels of a choice, on the f16 grid.
fn refit<const GROUPS: usize, const N: usize>(
    groups: &[Affine<N>; GROUPS],
    choice: &Choice<GROUPS>,
    half: HalfGrid,
) -> Scales {
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
    Scales { step: half.nearest(step), minimum: half.nearest(minimum) }
}
