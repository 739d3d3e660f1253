//! Fits `value ≈ step · level` with levels on both sides of zero.

use super::grid::Grid;

/// Numbers that share one step.
pub(super) struct Symmetric<'a, G, const E: usize> {
    /// Normalised numbers.
    pub(super) values: &'a [f32; E],
    /// Their weights.
    pub(super) weights: &'a [f32; E],
    /// The levels they may take.
    pub(super) grid: G,
}

/// What a step costs, with the sums from which the least-squares step follows.
#[derive(Clone, Copy)]
pub(super) struct Fit {
    /// Weighted squared error.
    pub(super) error: f32,
    /// Σ weight · level².
    pub(super) level_square: f32,
    /// Σ weight · value · level.
    pub(super) value_level: f32,
}

/// Into how many steps the largest magnitude is divided to begin with, as shares of the outermost levels.
///
/// A share above one leaves the outermost level unused; one below it moves the largest numbers closer to zero so that
/// all others get finer steps, which pays the more the fewer levels there are.
#[derive(Clone, Copy)]
pub(super) struct Tries {
    /// The first share.
    pub(super) from: f32,
    /// The last share.
    pub(super) to: f32,
    /// How many.
    pub(super) count: u32,
    /// How often each is improved by least squares.
    pub(super) refits: u32,
}

impl Fit {
    /// The step with the least error for these levels.
    pub(super) fn best_step(&self) -> f32 {
        if self.level_square > 0.0 { self.value_level / self.level_square } else { 0.0 }
    }
}

const LANES: usize = 8;

impl<G: Grid, const E: usize> Symmetric<'_, G, E> {
    /// The nearest level of each number, counted from the lowest.
    pub(super) fn assign(&self, step: f32) -> [u8; E] {
        let inverse = if step == 0.0 { 0.0 } else { 1.0 / step };
        self.values.map(|value| self.grid.index(self.grid.nearest(value * inverse)))
    }

    /// The best step among those that `storable` leaves; of both signs, because no grid is its own mirror image.
    pub(super) fn search(&self, tries: Tries, storable: impl Fn(f32) -> f32) -> (f32, Fit) {
        let largest = largest(self.values.iter().copied());
        let mut best = (0.0, self.measure(0.0));
        for i in 0..tries.count {
            let share = tries.from + (tries.to - tries.from) * i as f32 / (tries.count - 1) as f32;
            for outermost in [self.grid.lowest(), self.grid.highest()] {
                let mut step = storable(largest / (share * outermost));
                for _ in 0..=tries.refits {
                    let fit = self.measure(step);
                    if fit.error < best.1.error {
                        best = (step, fit);
                    }
                    let refitted = storable(fit.best_step());
                    if refitted == step {
                        break;
                    }
                    step = refitted;
                }
            }
        }
        best
    }

    /// Measures a step; sums run in lanes so that they become vector code with one fixed order.
    #[inline]
    pub(super) fn measure(&self, step: f32) -> Fit {
        let inverse = if step == 0.0 { 0.0 } else { 1.0 / step };
        let (mut error, mut square, mut product) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
        let values = self.values.as_chunks::<LANES>().0;
        let weights = self.weights.as_chunks::<LANES>().0;
        for (values, weights) in values.iter().zip(weights) {
            for lane in 0..LANES {
                let level = self.grid.nearest(values[lane] * inverse);
                let rest = values[lane] - step * level;
                let weighted = weights[lane] * level;
                error[lane] += weights[lane] * rest * rest;
                square[lane] += weighted * level;
                product[lane] += weighted * values[lane];
            }
        }
        Fit { error: total(error), level_square: total(square), value_level: total(product) }
    }
}

/// The number with the largest magnitude, sign included; the first of several.
pub(super) fn largest(values: impl Iterator<Item = f32>) -> f32 {
    values.fold(0.0, |largest, value| if value.abs() > largest.abs() { value } else { largest })
}

/// Adds up lanes in a fixed order.
#[inline]
pub(super) fn total(lanes: [f32; LANES]) -> f32 {
    ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]))
}
