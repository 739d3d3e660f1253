//! Fits `value ≈ step · level` with levels on both sides of zero.

use super::grid::Grid;
use super::groups::{Element, Groups, LANES, Lanes, equal, inverse};

/// Groups of numbers, each with a step of its own.
pub(super) struct Symmetric<G, const E: usize> {
    groups: Groups<E>,
    grid: G,
    /// What it costs to make every number zero.
    pub(super) zeros: Fit,
}

/// A step of every group: what it costs, with the sums from which the least-squares step follows.
#[derive(Clone, Copy)]
pub(super) struct Fit {
    /// Distance between levels.
    pub(super) step: Lanes,
    /// Weighted squared error.
    pub(super) error: Lanes,
    /// Σ weight · level².
    pub(super) level_square: Lanes,
    /// Σ weight · value · level.
    pub(super) value_level: Lanes,
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

/// Which steps can be stored.
pub(super) trait Steps {
    /// The nearest of them.
    fn nearest(&self, steps: Lanes) -> Lanes;
}

/// Every step can be stored.
pub(super) struct AnyStep;

impl Steps for AnyStep {
    #[inline(always)]
    fn nearest(&self, steps: Lanes) -> Lanes {
        steps
    }
}

impl Fit {
    /// The step with the least error for these levels.
    #[inline(always)]
    pub(super) fn best_step(&self) -> Lanes {
        let mut step = [0.0; LANES];
        for lane in 0..LANES {
            let square = self.level_square[lane];
            step[lane] = if square > 0.0 { self.value_level[lane] / square } else { 0.0 };
        }
        step
    }

    /// Takes the other fit in the lanes where it costs less.
    #[inline(always)]
    pub(super) fn improve(&mut self, other: &Fit) {
        for lane in 0..LANES {
            let better = other.error[lane] < self.error[lane];
            self.step[lane] = if better { other.step[lane] } else { self.step[lane] };
            self.level_square[lane] = if better { other.level_square[lane] } else { self.level_square[lane] };
            self.value_level[lane] = if better { other.value_level[lane] } else { self.value_level[lane] };
            self.error[lane] = if better { other.error[lane] } else { self.error[lane] };
        }
    }
}

impl<G: Grid, const E: usize> Symmetric<G, E> {
    /// Groups of normalised numbers.
    #[inline(always)]
    pub(super) fn new(groups: Groups<E>, grid: G) -> Self {
        let nothing = [0.0; LANES];
        let zeros = Fit { step: nothing, error: nothing, level_square: nothing, value_level: nothing };
        let mut symmetric = Symmetric { groups, grid, zeros };
        symmetric.zeros = symmetric.measure([0.0; LANES]);
        symmetric
    }

    /// The best steps among those that can be stored; of both signs, because no grid is its own mirror image.
    #[inline(always)]
    pub(super) fn search(&self, tries: Tries, steps: &impl Steps) -> Fit {
        let largest = self.groups.largest();
        let mut best = self.zeros;
        for i in 0..2 * tries.count {
            let share = tries.from + (tries.to - tries.from) * (i / 2) as f32 / (tries.count - 1) as f32;
            let outermost = if i.is_multiple_of(2) { self.grid.lowest() } else { self.grid.highest() };
            let mut start = largest;
            for lane in 0..LANES {
                start[lane] /= share * outermost;
            }
            let mut step = steps.nearest(start);
            for _ in 0..=tries.refits {
                let fit = self.measure(step);
                best.improve(&fit);
                let refitted = steps.nearest(fit.best_step());
                if equal(&refitted, &step) {
                    break;
                }
                step = refitted;
            }
        }
        best
    }

    /// What a step of every group costs.
    #[inline(always)]
    pub(super) fn measure(&self, step: Lanes) -> Fit {
        let costs = Costs { step: &step, inverse: &inverse(&step), grid: self.grid };
        let [error, level_square, value_level] = self.groups.add_up(&costs);
        Fit { step, error, level_square, value_level }
    }

    /// The nearest level of each number, counted from the lowest; row `i` has element `i` of every group.
    #[inline(always)]
    pub(super) fn assign(&self, step: Lanes) -> [[u8; LANES]; E] {
        let inverse = inverse(&step);
        let mut levels = [[0; LANES]; E];
        for (levels, values) in levels.iter_mut().zip(&self.groups.values) {
            for lane in 0..LANES {
                levels[lane] = self.grid.index(self.grid.nearest(values[lane] * inverse[lane]));
            }
        }
        levels
    }
}

struct Costs<'a, G> {
    step: &'a Lanes,
    inverse: &'a Lanes,
    grid: G,
}

impl<G: Grid> Element<3> for Costs<'_, G> {
    #[inline(always)]
    fn terms(&self, lane: usize, value: f32, weight: f32) -> [f32; 3] {
        let level = self.grid.nearest(value * self.inverse[lane]);
        let rest = value - self.step[lane] * level;
        let weighted = weight * level;
        [weight * rest * rest, weighted * level, weighted * value]
    }
}
