//! As many super-blocks as have sub-blocks for all lanes: one of sixteen sub-blocks, or two of eight.

use std::ops::Range;

use super::groups::{Groups, LANES, Lanes};
use super::half_grid::HalfGrid;
use super::rows::WholeBlocks;
use super::weights::weigh;
use crate::blocks::SUPER_BLOCK;

/// `BLOCKS` super-blocks, normalised, with `E` numbers in each sub-block.
pub(super) struct SuperBlocks<const E: usize, const BLOCKS: usize> {
    /// Their sub-blocks, those of the first block in the first lanes.
    pub(super) groups: Groups<E>,
    /// The f16 scales that each may have; `None` where every number becomes zero, or where there is no block.
    pub(super) halves: [Option<HalfGrid>; BLOCKS],
}

impl<const E: usize, const BLOCKS: usize> SuperBlocks<E, BLOCKS> {
    /// The blocks of the rows from `first` on.
    #[inline(always)]
    pub(super) fn read<const B: usize>(rows: &WholeBlocks<'_, SUPER_BLOCK, B>, first: usize) -> Self {
        const { assert!(BLOCKS * SUPER_BLOCK == E * LANES) }
        let (mut values, mut weights) = ([[0.0; SUPER_BLOCK]; BLOCKS], [[1.0; SUPER_BLOCK]; BLOCKS]);
        let mut halves = [None; BLOCKS];
        for (at, block) in rows.values[first..].iter().take(BLOCKS).enumerate() {
            values[at] = *block;
            halves[at] = HalfGrid::normalise(&mut values[at]);
            weights[at] = weigh(rows.importance.of_block(first + at));
        }
        let groups = Groups::of(values.as_flattened().as_chunks().0, weights.as_flattened().as_chunks().0);
        SuperBlocks { groups, halves }
    }
}

/// The lanes of a block's sub-blocks.
#[inline(always)]
pub(super) fn lanes_of<const BLOCKS: usize>(block: usize) -> Range<usize> {
    let groups = LANES / BLOCKS;
    block * groups..(block + 1) * groups
}

/// Every block's number in the lanes of its sub-blocks.
#[inline(always)]
pub(super) fn spread<const BLOCKS: usize>(numbers: &[f32; BLOCKS]) -> Lanes {
    let mut lanes = [0.0; LANES];
    for lane in 0..LANES {
        lanes[lane] = numbers[lane / (LANES / BLOCKS)];
    }
    lanes
}

/// The sum over the sub-blocks of each block, in their order.
#[inline(always)]
pub(super) fn sum_of_each<const BLOCKS: usize>(lanes: &Lanes) -> [f32; BLOCKS] {
    let mut sums = [0.0; BLOCKS];
    for block in 0..BLOCKS {
        for lane in lanes_of::<BLOCKS>(block) {
            sums[block] += lanes[lane];
        }
    }
    sums
}

/// The levels of a block in the order of its numbers, from rows that have one level of every sub-block.
#[inline(always)]
pub(super) fn levels_of<const E: usize>(rows: &[[u8; LANES]; E], block: usize) -> [u8; SUPER_BLOCK] {
    let first = block * (SUPER_BLOCK / E);
    let mut levels = [0; SUPER_BLOCK];
    for (group, levels) in levels.as_chunks_mut::<E>().0.iter_mut().enumerate() {
        for at in 0..E {
            levels[at] = rows[at][first + group];
        }
    }
    levels
}
