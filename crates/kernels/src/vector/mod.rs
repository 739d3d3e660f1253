//! Loops that all vector instruction sets share, as macros: each set compiles them with registers of its own.

use crate::reading::ReadAhead;

pub(crate) mod attention;
pub(crate) mod float;
pub(crate) mod formats;
pub(crate) mod four_rows;
pub(crate) mod interleaved256;
pub(crate) mod interleaved32;
pub(crate) mod interleaved_formats;
pub(crate) mod kv_codes;
pub(crate) mod row_scores;
pub(crate) mod store;

/// Up to this many columns, interleaved blocks of 32 are read row by row; more share some of them at a time.
pub(crate) const WHOLE_ROWS: usize = 8;
/// Columns that share unpacked quants: as many as the nearer caches hold, and whole sets of six.
pub(crate) const MANY: usize = 258;
/// Columns from which interleaving rows on the way pays.
pub(crate) const LEAST_TURNED: usize = 4;

/// The `N` bytes at `at` of a block; the layout of the format keeps them inside.
#[inline]
pub(crate) fn field<const N: usize, const BYTES: usize>(block: &[u8; BYTES], at: usize) -> &[u8; N] {
    block[at..].first_chunk().expect("a field lies inside its block")
}

/// The two bytes at `at` of a block.
#[inline]
pub(crate) fn pair<const BYTES: usize>(block: &[u8; BYTES], at: usize) -> [u8; 2] {
    [block[at], block[at + 1]]
}

/// Whether sets of six waste no more than sets of four, where the last column repeats in a last short set.
pub(crate) fn in_sixes(columns: usize) -> bool {
    columns.next_multiple_of(6) <= columns.next_multiple_of(4)
}

/// Columns of one pass where there are `columns` in all: at most `most`, and the last pass not much shorter. Whole sets
/// of `together`.
pub(crate) fn chunk(columns: usize, most: usize, together: usize) -> usize {
    columns.div_ceil(columns.div_ceil(most)).next_multiple_of(together).min(most)
}

/// Where in a unit of interleaved rows to ask for bytes that will be read soon.
#[derive(Clone, Copy)]
pub(crate) struct Ahead {
    /// Blocks of a row.
    blocks: usize,
    /// From the block that is read to the one that is asked for.
    distance: usize,
    /// From a unit to the next.
    unit_bytes: usize,
}

impl Ahead {
    /// As far as `ahead` says, in whole blocks of `block_bytes`; at most as far as the next unit.
    pub(crate) fn new(ahead: ReadAhead, blocks: usize, (block_bytes, unit_bytes): (usize, usize)) -> Ahead {
        Ahead { blocks, distance: ahead.bytes().div_ceil(block_bytes).min(blocks), unit_bytes }
    }

    /// How far ahead of a part of block `at`, which has `part_bytes` in every block: in the same rows, or at the start
    /// of the next unit.
    pub(crate) fn bytes(self, at: usize, part_bytes: usize) -> usize {
        match at + self.distance < self.blocks {
            true => self.distance * part_bytes,
            false => self.unit_bytes - (self.blocks - self.distance) * part_bytes,
        }
    }
}
