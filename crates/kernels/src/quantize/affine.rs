//! Fits `value ≈ step · level − minimum` to the numbers of a sub-block.

use super::grid::round;
use super::symmetric::total;

const LANES: usize = 8;

/// Numbers that share one step and one minimum.
pub(super) struct Affine<const N: usize> {
    values: [f32; N],
    weights: [f32; N],
    highest: f32,
    /// Σ weight.
    pub(super) weight: f32,
    /// Σ weight · value.
    pub(super) value: f32,
}

/// A step and a minimum with what they cost.
#[derive(Clone, Copy, Default)]
pub(super) struct Fit {
    /// Distance between levels.
    pub(super) step: f32,
    /// What is subtracted, never negative.
    pub(super) minimum: f32,
    /// Weighted squared error.
    pub(super) error: f32,
    /// Σ weight · level.
    pub(super) level: f32,
    /// Σ weight · level².
    pub(super) level_square: f32,
    /// Σ weight · value · level.
    pub(super) value_level: f32,
}

impl<const N: usize> Affine<N> {
    /// A sub-block whose levels go from zero to `highest`.
    pub(super) fn new(values: &[f32; N], weights: &[f32; N], highest: f32) -> Self {
        let weight = weights.iter().sum();
        let value = weights.iter().zip(values).map(|(weight, value)| weight * value).sum();
        Affine { values: *values, weights: *weights, highest, weight, value }
    }

    /// Searches for the step and minimum with the least error, from many starting ranges.
    ///
    /// `inset` stretches [`INSETS`].
    pub(super) fn search(&self, inset: f32) -> Fit {
        let lowest = self.values.iter().fold(0.0_f32, |lowest, &value| lowest.min(value));
        let highest = self.values.iter().fold(f32::MIN, |highest, &value| highest.max(value));
        let span = highest - lowest;
        let mut best = self.measure(0.0, 0.0);
        let insets = INSETS.map(|steps| steps * inset);
        for below in insets {
            for above in insets {
                let step = span / (self.highest + below + above);
                let mut fit = self.measure(step, -(lowest - below * step));
                for _ in 0..REFITS {
                    if fit.error < best.error {
                        best = fit;
                    }
                    let (step, minimum) = self.refit(&fit);
                    if step == fit.step && minimum == fit.minimum {
                        break;
                    }
                    fit = self.measure(step, minimum);
                }
                if fit.error < best.error {
                    best = fit;
                }
            }
        }
        best
    }

    /// The least-squares step and minimum for the levels of a fit.
    fn refit(&self, fit: &Fit) -> (f32, f32) {
        let determinant = self.weight * fit.level_square - fit.level * fit.level;
        if determinant > 1e-6 * self.weight * fit.level_square {
            let step = (self.weight * fit.value_level - self.value * fit.level) / determinant;
            let minimum = (fit.level * fit.value_level - fit.level_square * self.value) / determinant;
            if minimum >= 0.0 && step > 0.0 {
                return (step, minimum);
            }
        }
        let step = if fit.level_square > 0.0 { fit.value_level / fit.level_square } else { 0.0 };
        (step.max(0.0), 0.0)
    }

    /// The least-squares minimum for a step, given the sum of the weighted levels.
    #[inline]
    pub(super) fn best_minimum(&self, step: f32, level: f32) -> f32 {
        ((step * level - self.value) / self.weight).max(0.0)
    }

    /// The nearest level of each number.
    pub(super) fn assign(&self, step: f32, minimum: f32) -> [u8; N] {
        let inverse = if step > 0.0 { 1.0 / step } else { 0.0 };
        self.values.map(|value| nearest_level((value + minimum) * inverse, self.highest) as u8)
    }

    /// Measures a step and a minimum; sums run in lanes so that they become vector code with one fixed order.
    #[inline]
    pub(super) fn measure(&self, step: f32, minimum: f32) -> Fit {
        let inverse = if step > 0.0 { 1.0 / step } else { 0.0 };
        let (mut error, mut linear, mut square, mut product) = ([0.0; LANES], [0.0; LANES], [0.0; LANES], [0.0; LANES]);
        let values = self.values.as_chunks::<LANES>().0;
        let weights = self.weights.as_chunks::<LANES>().0;
        for (values, weights) in values.iter().zip(weights) {
            for lane in 0..LANES {
                let level = nearest_level((values[lane] + minimum) * inverse, self.highest);
                let rest = values[lane] - (step * level - minimum);
                let weighted = weights[lane] * level;
                error[lane] += weights[lane] * rest * rest;
                linear[lane] += weighted;
                square[lane] += weighted * level;
                product[lane] += weighted * values[lane];
            }
        }
        Fit {
            step,
            minimum,
            error: total(error),
            level: total(linear),
            level_square: total(square),
            value_level: total(product),
        }
    }
}

/// By how many steps the outermost levels may lie inside (negative) or outside the range of the numbers.
const INSETS: [f32; 5] = [0.3, -0.1, -0.5, -1.0, -1.6];
const REFITS: usize = 2;

#[inline]
fn nearest_level(scaled: f32, highest: f32) -> f32 {
    round(scaled.max(0.0).min(highest))
}
