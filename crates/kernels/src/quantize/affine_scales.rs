//! Super-blocks whose sub-blocks have whole factors for steps and minima over two f16 scales, as Q2_K, Q4_K and Q5_K.

use std::ops::Range;

use super::affine::{Affine, Fit};
use super::grid::{clamp, round};
use super::groups::{LANES, Lanes};
use super::half_grid::HalfGrid;
use super::ranking::most_promising;
use super::super_blocks::{SuperBlocks, lanes_of, levels_of, spread, sum_of_each};
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
    /// Pairs of f16 scales that are measured, at most [`MOST_MEASURED`].
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
#[derive(Clone, Copy, Default, PartialEq)]
struct Scales {
    step: f32,
    minimum: f32,
}

/// The scales of every block and the factors of its sub-blocks, with what they cost.
#[derive(Clone, Copy)]
struct Choice<const BLOCKS: usize> {
    scales: [Scales; BLOCKS],
    steps: Lanes,
    minima: Lanes,
    errors: [f32; BLOCKS],
}

/// Divisors of the largest step, and of the largest minimum, that are ranked by a prediction.
const DIVISORS: usize = 20;
const RANKED: usize = DIVISORS * DIVISORS;
const MOST_MEASURED: usize = 5;

impl Scheme {
    /// Quantises blocks; `None` for a block whose every number becomes zero.
    #[inline(always)]
    pub(super) fn quantize<const GROUPS: usize, const E: usize, const BLOCKS: usize>(
        &self,
        blocks: SuperBlocks<E, BLOCKS>,
    ) -> [Option<Coded<GROUPS>>; BLOCKS] {
        const { assert!(GROUPS * BLOCKS == LANES) }
        let halves = blocks.halves;
        let groups = Affine::new(blocks.groups, self.highest_level);
        let wanted = groups.search(self.inset);
        let choice = self.search_scales(&groups, &wanted, halves);
        let (mut steps, mut minima) = spread_scales(&choice.scales);
        for lane in 0..LANES {
            steps[lane] *= choice.steps[lane];
            minima[lane] *= choice.minima[lane];
        }
        let levels = groups.assign(steps, minima);
        let mut coded = [const { None }; BLOCKS];
        for (block, coded) in coded.iter_mut().enumerate() {
            let (steps, minima) = (choice.steps.as_chunks::<GROUPS>().0, choice.minima.as_chunks::<GROUPS>().0);
            *coded = halves[block].map(|half| Coded {
                step_scale: half.bytes(choice.scales[block].step),
                minimum_scale: half.bytes(choice.scales[block].minimum),
                steps: steps[block].map(|factor| factor as u8),
                minima: minima[block].map(|factor| factor as u8),
                levels: levels_of(&levels, block),
            });
        }
        coded
    }

    /// Ranks pairs of f16 scales by a prediction, then measures and refits the most promising. Scales that have settled
    /// are measured again beside those that have not, which changes nothing.
    #[inline(always)]
    fn search_scales<const E: usize, const BLOCKS: usize>(
        &self,
        groups: &Affine<E>,
        wanted: &Fit,
        halves: [Option<HalfGrid>; BLOCKS],
    ) -> Choice<BLOCKS> {
        let mut ranked = [[Scales::default(); MOST_MEASURED]; BLOCKS];
        for block in 0..BLOCKS {
            let Some(half) = halves[block] else { continue };
            let lanes = lanes_of::<BLOCKS>(block);
            let steps = self.candidates(&wanted.step[lanes.clone()], half);
            let minima = self.candidates(&wanted.minimum[lanes.clone()], half);
            let mut candidates = [Scales::default(); RANKED];
            for (at, candidate) in candidates.iter_mut().enumerate() {
                *candidate = Scales { step: steps[at / DIVISORS], minimum: minima[at % DIVISORS] };
            }
            let predicted = self.predict(groups, wanted, lanes, (&steps, &minima));
            ranked[block] = most_promising(&predicted, &candidates);
        }
        let (mut best, _) = self.choose(groups, wanted, [Scales::default(); BLOCKS]);
        for rank in 0..self.measured {
            let mut scales = ranked.map(|ranked| ranked[rank]);
            for _ in 0..3 {
                let (choice, fit) = self.choose(groups, wanted, scales);
                let refitted = refit(groups, (&choice, &fit), halves);
                best.improve(&choice);
                if refitted == scales {
                    break;
                }
                scales = refitted;
            }
        }
        best
    }

    /// Scales on which the largest of the wanted numbers has high factors.
    #[inline(always)]
    fn candidates(&self, wanted: &[f32], half: HalfGrid) -> [f32; DIVISORS] {
        let mut largest = 0.0;
        for &number in wanted {
            largest = if number > largest { number } else { largest };
        }
        let mut scales = [0.0; DIVISORS];
        for (i, scale) in scales.iter_mut().enumerate() {
            *scale = half.nearest(largest / ((self.highest_factor + 1.0) * (1.0 - i as f32 / 64.0)));
        }
        scales
    }

    /// What every step scale with every minimum scale would cost the sub-blocks in some lanes if no level changed: a
    /// quadratic form around each sub-block's best fit.
    #[inline(always)]
    fn predict<const E: usize>(
        &self,
        groups: &Affine<E>,
        wanted: &Fit,
        lanes: Range<usize>,
        (step_scales, minimum_scales): (&[f32; DIVISORS], &[f32; DIVISORS]),
    ) -> [f32; RANKED] {
        let mut inverse_minima = [0.0; DIVISORS];
        for at in 0..DIVISORS {
            inverse_minima[at] = inverse(minimum_scales[at]);
        }
        let mut errors = [0.0; RANKED];
        for lane in lanes {
            let (step, minimum, error) = (wanted.step[lane], wanted.minimum[lane], wanted.error[lane]);
            let (level, level_square) = (wanted.level[lane], wanted.level_square[lane]);
            let weight = groups.weight[lane];
            for (&scale, errors) in step_scales.iter().zip(errors.as_chunks_mut::<DIVISORS>().0) {
                let step_change = scale * self.factor(step * inverse(scale)) - step;
                let best = minimum + level / weight * step_change;
                let best = if best > 0.0 { best } else { 0.0 };
                for at in 0..DIVISORS {
                    let minimum_change = minimum_scales[at] * self.factor(best * inverse_minima[at]) - minimum;
                    errors[at] += error + level_square * step_change * step_change
                        - 2.0 * level * step_change * minimum_change
                        + weight * minimum_change * minimum_change;
                }
            }
        }
        errors
    }

    /// The best factors of every sub-block for given scales, and their fit.
    #[inline(always)]
    fn choose<const E: usize, const BLOCKS: usize>(
        &self,
        groups: &Affine<E>,
        wanted: &Fit,
        scales: [Scales; BLOCKS],
    ) -> (Choice<BLOCKS>, Fit) {
        let (step_scale, minimum_scale) = spread_scales(&scales);
        let centre = self.factors(&wanted.step, &step_scale);
        let mut choice = Choice { scales, steps: [0.0; LANES], minima: [0.0; LANES], errors: [0.0; BLOCKS] };
        let mut best = groups.zeros;
        for offset in [0.0, -1.0, 1.0] {
            let (mut steps, mut step, mut allowed) = (centre, centre, [false; LANES]);
            for lane in 0..LANES {
                steps[lane] += offset;
                step[lane] = step_scale[lane] * steps[lane];
                allowed[lane] = (steps[lane] >= 0.0) & (steps[lane] <= self.highest_factor);
            }
            let mut minima = self.factors(&groups.best_minima(&step, &wanted.level), &minimum_scale);
            for _ in 0..3 {
                let mut minimum = minimum_scale;
                for lane in 0..LANES {
                    minimum[lane] *= minima[lane];
                }
                let fit = groups.measure(step, minimum);
                let mut better = fit.beats(&best);
                for lane in 0..LANES {
                    better[lane] &= allowed[lane];
                    choice.steps[lane] = if better[lane] { steps[lane] } else { choice.steps[lane] };
                    choice.minima[lane] = if better[lane] { minima[lane] } else { choice.minima[lane] };
                }
                best.replace(&fit, &better);
                let refitted = self.factors(&groups.best_minima(&step, &fit.level), &minimum_scale);
                if settled(&refitted, &minima, &allowed) {
                    break;
                }
                minima = refitted;
            }
        }
        choice.errors = sum_of_each(&best.error);
        (choice, best)
    }

    /// The nearest factors by which scales give these numbers.
    #[inline(always)]
    fn factors(&self, numbers: &Lanes, scales: &Lanes) -> Lanes {
        let mut factors = [0.0; LANES];
        for lane in 0..LANES {
            let factor = self.factor(numbers[lane] / scales[lane]);
            factors[lane] = if scales[lane] > 0.0 { factor } else { 0.0 };
        }
        factors
    }

    /// The nearest factor to a number that is not negative.
    #[inline(always)]
    fn factor(&self, ratio: f32) -> f32 {
        round(clamp(ratio, 0.0, self.highest_factor))
    }
}

impl<const BLOCKS: usize> Choice<BLOCKS> {
    /// Takes the other choice for the blocks where it costs less.
    #[inline(always)]
    fn improve(&mut self, other: &Choice<BLOCKS>) {
        for block in 0..BLOCKS {
            if other.errors[block] < self.errors[block] {
                let lanes = lanes_of::<BLOCKS>(block);
                (self.scales[block], self.errors[block]) = (other.scales[block], other.errors[block]);
                self.steps[lanes.clone()].copy_from_slice(&other.steps[lanes.clone()]);
                self.minima[lanes.clone()].copy_from_slice(&other.minima[lanes]);
            }
        }
    }
}

/// The scales of steps and of minima in the lanes of their blocks.
#[inline(always)]
fn spread_scales<const BLOCKS: usize>(scales: &[Scales; BLOCKS]) -> (Lanes, Lanes) {
    (spread(&scales.map(|scales| scales.step)), spread(&scales.map(|scales| scales.minimum)))
}

/// Whether factors stay the same in all lanes in which they are allowed.
#[inline(always)]
fn settled(after: &Lanes, before: &Lanes, allowed: &[bool; LANES]) -> bool {
    let mut settled = true;
    for lane in 0..LANES {
        settled &= (after[lane] == before[lane]) | !allowed[lane];
    }
    settled
}

#[inline(always)]
fn inverse(scale: f32) -> f32 {
    if scale > 0.0 { 1.0 / scale } else { 0.0 }
}

/// The least-squares scales of every block for the factors and levels of a choice, on the f16 grid.
#[inline(always)]
fn refit<const E: usize, const BLOCKS: usize>(
    groups: &Affine<E>,
    (choice, fit): (&Choice<BLOCKS>, &Fit),
    halves: [Option<HalfGrid>; BLOCKS],
) -> [Scales; BLOCKS] {
    let mut scales = choice.scales;
    for block in 0..BLOCKS {
        let Some(half) = halves[block] else { continue };
        let (mut steps, mut cross, mut minima, mut step_value, mut minimum_value) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for lane in lanes_of::<BLOCKS>(block) {
            let (step, minimum) = (choice.steps[lane], choice.minima[lane]);
            steps += step * step * fit.level_square[lane];
            cross += step * minimum * fit.level[lane];
            minima += minimum * minimum * groups.weight[lane];
            step_value += step * fit.value_level[lane];
            minimum_value += minimum * groups.value[lane];
        }
        let determinant = steps * minima - cross * cross;
        if determinant <= 1e-6 * steps * minima {
            continue;
        }
        let step = (minima * step_value - cross * minimum_value) / determinant;
        let minimum = (cross * step_value - steps * minimum_value) / determinant;
        if step <= 0.0 || minimum <= 0.0 {
            continue;
        }
        scales[block] = Scales { step: half.nearest(step), minimum: half.nearest(minimum) };
    }
    scales
}
