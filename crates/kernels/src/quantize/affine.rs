//! Fits `value ≈ step · level − minimum` to the numbers of sub-blocks.

use super::grid::{clamp, round};
use super::groups::{Element, Groups, LANES, Lanes, equal};

/// Groups of numbers, each with a step and a minimum of its own.
pub(super) struct Affine<const E: usize> {
    groups: Groups<E>,
    highest: f32,
    /// Σ weight.
    pub(super) weight: Lanes,
    /// Σ weight · value.
    pub(super) value: Lanes,
    /// What it costs to make every number zero.
    pub(super) zeros: Fit,
}

/// A step and a minimum of every group with what they cost.
#[derive(Clone, Copy)]
pub(super) struct Fit {
    /// Distance between levels.
    pub(super) step: Lanes,
    /// What is subtracted, never negative.
    pub(super) minimum: Lanes,
    /// Weighted squared error.
    pub(super) error: Lanes,
    /// Σ weight · level.
    pub(super) level: Lanes,
    /// Σ weight · level².
    pub(super) level_square: Lanes,
    /// Σ weight · value · level.
    pub(super) value_level: Lanes,
}

/// By how many steps the outermost levels may lie inside (negative) or outside the range of the numbers.
const INSETS: [f32; 5] = [0.3, -0.1, -0.5, -1.0, -1.6];
const REFITS: usize = 2;

impl Fit {
    const NONE: Fit = Fit {
        step: [0.0; LANES],
        minimum: [0.0; LANES],
        error: [0.0; LANES],
        level: [0.0; LANES],
        level_square: [0.0; LANES],
        value_level: [0.0; LANES],
    };

    /// Takes the other fit in the lanes where `better` says so.
    #[inline(always)]
    pub(super) fn replace(&mut self, other: &Fit, better: &[bool; LANES]) {
        let choose = |own: &mut Lanes, other: &Lanes| {
            for lane in 0..LANES {
                own[lane] = if better[lane] { other[lane] } else { own[lane] };
            }
        };
        choose(&mut self.step, &other.step);
        choose(&mut self.minimum, &other.minimum);
        choose(&mut self.error, &other.error);
        choose(&mut self.level, &other.level);
        choose(&mut self.level_square, &other.level_square);
        choose(&mut self.value_level, &other.value_level);
    }

    /// In which lanes it costs less than another.
    #[inline(always)]
    pub(super) fn beats(&self, other: &Fit) -> [bool; LANES] {
        let mut better = [false; LANES];
        for lane in 0..LANES {
            better[lane] = self.error[lane] < other.error[lane];
        }
        better
    }
}

impl<const E: usize> Affine<E> {
    /// Groups whose levels go from zero to `highest`.
    #[inline(always)]
    pub(super) fn new(groups: Groups<E>, highest: f32) -> Self {
        let (mut weight, mut value) = ([0.0; LANES], [0.0; LANES]);
        for (values, weights) in groups.values.iter().zip(&groups.weights) {
            for lane in 0..LANES {
                weight[lane] += weights[lane];
                value[lane] += weights[lane] * values[lane];
            }
        }
        let mut affine = Affine { groups, highest, weight, value, zeros: Fit::NONE };
        affine.zeros = affine.measure([0.0; LANES], [0.0; LANES]);
        affine
    }

    /// Searches for the step and minimum with the least error, from many starting ranges.
    ///
    /// `inset` stretches [`INSETS`].
    #[inline(always)]
    pub(super) fn search(&self, inset: f32) -> Fit {
        let (lowest, span) = self.range();
        let mut best = self.zeros;
        for start in 0..INSETS.len() * INSETS.len() {
            let (below, above) = (INSETS[start / INSETS.len()] * inset, INSETS[start % INSETS.len()] * inset);
            let (mut step, mut minimum) = ([0.0; LANES], [0.0; LANES]);
            for lane in 0..LANES {
                step[lane] = span[lane] / (self.highest + below + above);
                minimum[lane] = -(lowest[lane] - below * step[lane]);
            }
            for _ in 0..=REFITS {
                let fit = self.measure(step, minimum);
                best.replace(&fit, &fit.beats(&best));
                (step, minimum) = self.refit(&fit);
                if equal(&step, &fit.step) && equal(&minimum, &fit.minimum) {
                    break;
                }
            }
        }
        best
    }

    /// The lowest number of every group, or zero, and how far the highest lies above it.
    #[inline(always)]
    fn range(&self) -> (Lanes, Lanes) {
        let (mut lowest, mut highest) = ([0.0; LANES], [f32::MIN; LANES]);
        for values in &self.groups.values {
            for lane in 0..LANES {
                lowest[lane] = if values[lane] < lowest[lane] { values[lane] } else { lowest[lane] };
                highest[lane] = if values[lane] > highest[lane] { values[lane] } else { highest[lane] };
            }
        }
        for lane in 0..LANES {
            highest[lane] -= lowest[lane];
        }
        (lowest, highest)
    }

    /// The least-squares step and minimum for the levels of a fit.
    #[inline(always)]
    fn refit(&self, fit: &Fit) -> (Lanes, Lanes) {
        let (mut steps, mut minima) = ([0.0; LANES], [0.0; LANES]);
        for lane in 0..LANES {
            let (weight, value) = (self.weight[lane], self.value[lane]);
            let (level, square, product) = (fit.level[lane], fit.level_square[lane], fit.value_level[lane]);
            let determinant = weight * square - level * level;
            let step = (weight * product - value * level) / determinant;
            let minimum = (level * product - square * value) / determinant;
            let solved = (determinant > 1e-6 * weight * square) & (minimum >= 0.0) & (step > 0.0);
            let alone = if square > 0.0 { product / square } else { 0.0 };
            let alone = if alone > 0.0 { alone } else { 0.0 };
            steps[lane] = if solved { step } else { alone };
            minima[lane] = if solved { minimum } else { 0.0 };
        }
        (steps, minima)
    }

    /// The least-squares minima for steps, given the sums of the weighted levels.
    #[inline(always)]
    pub(super) fn best_minima(&self, step: &Lanes, level: &Lanes) -> Lanes {
        let mut minima = [0.0; LANES];
        for lane in 0..LANES {
            let minimum = (step[lane] * level[lane] - self.value[lane]) / self.weight[lane];
            minima[lane] = if minimum > 0.0 { minimum } else { 0.0 };
        }
        minima
    }

    /// What a step and a minimum of every group cost.
    #[inline(always)]
    pub(super) fn measure(&self, step: Lanes, minimum: Lanes) -> Fit {
        let costs = Costs { step: &step, minimum: &minimum, inverse: &inverse(&step), highest: self.highest };
        let [error, level, level_square, value_level] = self.groups.add_up(&costs);
        Fit { step, minimum, error, level, level_square, value_level }
    }

    /// The nearest level of each number; row `i` has element `i` of every group.
    #[inline(always)]
    pub(super) fn assign(&self, step: Lanes, minimum: Lanes) -> [[u8; LANES]; E] {
        let inverse = inverse(&step);
        let mut levels = [[0; LANES]; E];
        for (levels, values) in levels.iter_mut().zip(&self.groups.values) {
            for lane in 0..LANES {
                levels[lane] = nearest_level((values[lane] + minimum[lane]) * inverse[lane], self.highest) as u8;
            }
        }
        levels
    }
}

struct Costs<'a> {
    step: &'a Lanes,
    minimum: &'a Lanes,
    inverse: &'a Lanes,
    highest: f32,
}

impl Element<4> for Costs<'_> {
    #[inline(always)]
    fn terms(&self, lane: usize, value: f32, weight: f32) -> [f32; 4] {
        let level = nearest_level((value + self.minimum[lane]) * self.inverse[lane], self.highest);
        let rest = value - (self.step[lane] * level - self.minimum[lane]);
        let weighted = weight * level;
        [weight * rest * rest, weighted, weighted * level, weighted * value]
    }
}

/// One over a step, or zero where there is none.
#[inline(always)]
fn inverse(steps: &Lanes) -> Lanes {
    let mut inverse = [0.0; LANES];
    for lane in 0..LANES {
        inverse[lane] = if steps[lane] > 0.0 { 1.0 / steps[lane] } else { 0.0 };
    }
    inverse
}

#[inline(always)]
fn nearest_level(scaled: f32, highest: f32) -> f32 {
    round(clamp(scaled, 0.0, highest))
}
