//! Super-blocks whose sub-blocks have signed whole factors over one f16 scale, as Q3_K, Q6_K and IQ4_XS.

use super::grid::{Grid, round};
use super::half_grid::HalfGrid;
use super::symmetric::{Fit, Symmetric, Tries, largest};
use super::weights::weigh;
use crate::blocks::SUPER_BLOCK;

/// What tells one such format from another.
#[derive(Clone, Copy)]
pub(super) struct Scheme<G> {
    /// The levels of the numbers.
    pub(super) grid: G,
    /// The lowest factor; the highest is one less in magnitude.
    pub(super) lowest_factor: f32,
    /// Where the search for a sub-block's step begins.
    pub(super) tries: Tries,
}

/// A quantised super-block.
pub(super) struct Coded<const GROUPS: usize> {
    /// The bytes of the f16 scale.
    pub(super) scale: [u8; 2],
    /// The factor of each sub-block.
    pub(super) factors: [i8; GROUPS],
    /// Levels counted from the lowest.
    pub(super) levels: [u8; SUPER_BLOCK],
}

/// A whole choice of scales with its error.
#[derive(Clone, Copy)]
struct Choice<const GROUPS: usize> {
    scale: f32,
    factors: [f32; GROUPS],
    error: f32,
    refitted: f32,
}

/// f16 scales that are ranked by a prediction, and those of them that are measured.
const RANKED: u32 = 48;
const MEASURED: usize = 3;

impl<G: Grid> Scheme<G> {
    /// Quantises one block: best step per sub-block, then the f16 scale on whose multiples those steps fall best.
    /// `None` when every number becomes zero.
    pub(super) fn quantize<const GROUPS: usize, const N: usize>(
        &self,
        values: &[f32; SUPER_BLOCK],
        importance: &[f32; SUPER_BLOCK],
    ) -> Option<Coded<GROUPS>> {
        let mut values = *values;
        let half = HalfGrid::normalise(&mut values)?;
        let weights = weigh(importance);
        let (numbers, weights) = (values.as_chunks::<N>().0, weights.as_chunks::<N>().0);
        let groups: [Symmetric<G, N>; GROUPS] =
            std::array::from_fn(|i| Symmetric { values: &numbers[i], weights: &weights[i], grid: self.grid });
        let wanted = std::array::from_fn(|i| groups[i].search(self.tries, |step| step));
        let choice = self.search_scale(&groups, &wanted, half);
        let mut levels = [0; SUPER_BLOCK];
        for ((group, factor), levels) in groups.iter().zip(choice.factors).zip(levels.as_chunks_mut().0) {
            *levels = group.assign(choice.scale * factor);
        }
        Some(Coded { scale: half.bytes(choice.scale), factors: choice.factors.map(|factor| factor as i8), levels })
    }

    /// Tries scales that put the largest step on different factors, then refits the best ones.
    fn search_scale<const GROUPS: usize, const N: usize>(
        &self,
        groups: &[Symmetric<G, N>; GROUPS],
        wanted: &[(f32, Fit); GROUPS],
        half: HalfGrid,
    ) -> Choice<GROUPS> {
        let largest = largest(wanted.iter().map(|(step, _)| *step));
        // From the lowest factor to three eighths less.
        let divisor = |i: u32| self.lowest_factor * (1.0 - i as f32 / 128.0);
        let mut candidates: Vec<(f32, f32)> = (0..RANKED)
            .map(|i| half.nearest(largest / divisor(i)))
            .filter(|scale| *scale != 0.0)
            .map(|scale| (self.predict(wanted, scale), scale))
            .collect();
        candidates.sort_by(|a, b| a.0.total_cmp(&b.0));
        candidates.dedup_by(|a, b| a.1 == b.1);
        let mut best = self.choose(groups, wanted, 0.0);
        for &(_, scale) in candidates.iter().take(MEASURED) {
            let mut scale = scale;
            for _ in 0..3 {
                let choice = self.choose(groups, wanted, scale);
                if choice.error < best.error {
                    best = choice;
                }
                let refitted = half.nearest(choice.refitted);
                if refitted == scale {
                    break;
                }
                scale = refitted;
            }
        }
        best
    }

    /// What the scale would cost if no level changed: each error grows with the square of the step's distance.
    fn predict<const GROUPS: usize>(&self, wanted: &[(f32, Fit); GROUPS], scale: f32) -> f32 {
        let cost = |(step, fit): &(f32, Fit)| {
            let distance = step - scale * self.factor(step / scale);
            fit.error + fit.level_square * distance * distance
        };
        wanted.iter().map(cost).sum()
    }

    /// The best factor of every sub-block for a given f16 scale.
    fn choose<const GROUPS: usize, const N: usize>(
        &self,
        groups: &[Symmetric<G, N>; GROUPS],
        wanted: &[(f32, Fit); GROUPS],
        scale: f32,
    ) -> Choice<GROUPS> {
        let mut choice = Choice { scale, factors: [0.0; GROUPS], error: 0.0, refitted: 0.0 };
        let (mut square, mut product) = (0.0, 0.0);
        for (i, (group, (step, _))) in groups.iter().zip(wanted).enumerate() {
            let centre = if scale == 0.0 { 0.0 } else { self.factor(step / scale) };
            let mut best = (0.0, group.measure(0.0));
            for offset in [0.0, -1.0, 1.0] {
                let factor = self.factor(centre + offset);
                let fit = group.measure(scale * factor);
                if fit.error < best.1.error {
                    best = (factor, fit);
                }
            }
            let (factor, fit) = best;
            choice.factors[i] = factor;
            choice.error += fit.error;
            square += factor * factor * fit.level_square;
            product += factor * fit.value_level;
        }
        choice.refitted = if square > 0.0 { product / square } else { 0.0 };
        choice
    }

    fn factor(&self, ratio: f32) -> f32 {
        round(ratio.max(self.lowest_factor).min(-self.lowest_factor - 1.0))
    }
}
