//! Super-blocks whose sub-blocks have signed whole factors over one f16 scale, as Q3_K, Q6_K and IQ4_XS.

use std::ops::Range;

use super::grid::{Grid, clamp, round};
use super::groups::{LANES, Lanes, largest};
use super::half_grid::HalfGrid;
use super::ranking::most_promising;
use super::super_blocks::{SuperBlocks, lanes_of, levels_of, spread, sum_of_each};
use super::symmetric::{AnyStep, Fit, Symmetric, Tries};
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

/// The scale of every block and the factors of its sub-blocks, with what they cost.
#[derive(Clone, Copy)]
struct Choice<const BLOCKS: usize> {
    scales: [f32; BLOCKS],
    factors: Lanes,
    errors: [f32; BLOCKS],
}

/// f16 scales that are ranked by a prediction, and those of them that are measured.
const RANKED: usize = 48;
const MEASURED: usize = 3;

impl<G: Grid> Scheme<G> {
    /// Quantises blocks: best step per sub-block, then the f16 scale on whose multiples those steps fall best. `None`
    /// for a block whose every number becomes zero.
    #[inline(always)]
    pub(super) fn quantize<const GROUPS: usize, const E: usize, const BLOCKS: usize>(
        &self,
        blocks: SuperBlocks<E, BLOCKS>,
    ) -> [Option<Coded<GROUPS>>; BLOCKS] {
        const { assert!(GROUPS * BLOCKS == LANES) }
        let halves = blocks.halves;
        let groups = Symmetric::new(blocks.groups, self.grid);
        let wanted = groups.search(self.tries, &AnyStep);
        let choice = self.search_scales(&groups, &wanted, halves);
        let mut steps = spread(&choice.scales);
        for lane in 0..LANES {
            steps[lane] *= choice.factors[lane];
        }
        let levels = groups.assign(steps);
        let mut coded = [const { None }; BLOCKS];
        for (block, coded) in coded.iter_mut().enumerate() {
            let factors = &choice.factors.as_chunks::<GROUPS>().0[block];
            *coded = halves[block].map(|half| Coded {
                scale: half.bytes(choice.scales[block]),
                factors: factors.map(|factor| factor as i8),
                levels: levels_of(&levels, block),
            });
        }
        coded
    }

    /// Tries scales that put the largest step of a block on different factors, then refits the best ones. Scales that
    /// have settled are measured again beside those that have not, which changes nothing.
    #[inline(always)]
    fn search_scales<const E: usize, const BLOCKS: usize>(
        &self,
        groups: &Symmetric<G, E>,
        wanted: &Fit,
        halves: [Option<HalfGrid>; BLOCKS],
    ) -> Choice<BLOCKS> {
        let mut ranked = [[0.0; MEASURED]; BLOCKS];
        for block in 0..BLOCKS {
            let Some(half) = halves[block] else { continue };
            let lanes = lanes_of::<BLOCKS>(block);
            let scales = self.candidates(&wanted.step[lanes.clone()], half);
            let predicted = self.predict(wanted, lanes, &scales);
            ranked[block] = most_promising(&predicted, &scales);
        }
        let (mut best, _) = self.choose(groups, wanted, [0.0; BLOCKS]);
        for rank in 0..MEASURED {
            let mut scales = ranked.map(|ranked| ranked[rank]);
            for _ in 0..3 {
                let (choice, mut refitted) = self.choose(groups, wanted, scales);
                best.improve(&choice);
                for block in 0..BLOCKS {
                    refitted[block] = halves[block].map_or(0.0, |half| half.nearest(refitted[block]));
                }
                if refitted == scales {
                    break;
                }
                scales = refitted;
            }
        }
        best
    }

    /// Scales on which the largest step has factors from the lowest to three eighths less.
    #[inline(always)]
    fn candidates(&self, steps: &[f32], half: HalfGrid) -> [f32; RANKED] {
        let largest = largest(steps);
        let mut scales = [0.0; RANKED];
        for (i, scale) in scales.iter_mut().enumerate() {
            *scale = half.nearest(largest / (self.lowest_factor * (1.0 - i as f32 / 128.0)));
        }
        scales
    }

    /// What each scale would cost the sub-blocks in some lanes if no level changed: each error grows with the square of
    /// the step's distance.
    #[inline(always)]
    fn predict(&self, wanted: &Fit, lanes: Range<usize>, scales: &[f32; RANKED]) -> [f32; RANKED] {
        let mut errors = [0.0; RANKED];
        for lane in lanes {
            let (step, error, level_square) = (wanted.step[lane], wanted.error[lane], wanted.level_square[lane]);
            for at in 0..RANKED {
                let distance = step - scales[at] * self.factor(step / scales[at]);
                errors[at] += error + level_square * distance * distance;
            }
        }
        for at in 0..RANKED {
            errors[at] = if scales[at] == 0.0 { f32::INFINITY } else { errors[at] };
        }
        errors
    }

    /// The best factor of every sub-block for given f16 scales, and the least-squares scales for these factors.
    #[inline(always)]
    fn choose<const E: usize, const BLOCKS: usize>(
        &self,
        groups: &Symmetric<G, E>,
        wanted: &Fit,
        scales: [f32; BLOCKS],
    ) -> (Choice<BLOCKS>, [f32; BLOCKS]) {
        let scale = spread(&scales);
        let mut factors = [0.0; LANES];
        let mut best = groups.zeros;
        for offset in [0.0, -1.0, 1.0] {
            let (mut tried, mut step) = ([0.0; LANES], [0.0; LANES]);
            for lane in 0..LANES {
                let ratio = wanted.step[lane] / scale[lane];
                let centre = if scale[lane] == 0.0 { 0.0 } else { self.factor(ratio) };
                tried[lane] = self.factor(centre + offset);
                step[lane] = scale[lane] * tried[lane];
            }
            let fit = groups.measure(step);
            for lane in 0..LANES {
                let better = fit.error[lane] < best.error[lane];
                factors[lane] = if better { tried[lane] } else { factors[lane] };
            }
            best.improve(&fit);
        }
        let (mut squares, mut products) = (factors, factors);
        for lane in 0..LANES {
            squares[lane] = factors[lane] * factors[lane] * best.level_square[lane];
            products[lane] = factors[lane] * best.value_level[lane];
        }
        let (squares, mut refitted) = (sum_of_each::<BLOCKS>(&squares), sum_of_each::<BLOCKS>(&products));
        for block in 0..BLOCKS {
            refitted[block] = if squares[block] > 0.0 { refitted[block] / squares[block] } else { 0.0 };
        }
        (Choice { scales, factors, errors: sum_of_each(&best.error) }, refitted)
    }

    #[inline(always)]
    fn factor(&self, ratio: f32) -> f32 {
        round(clamp(ratio, self.lowest_factor, -self.lowest_factor - 1.0))
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
                self.factors[lanes.clone()].copy_from_slice(&other.factors[lanes]);
            }
        }
    }
}
