//! The loops around turned blocks: every lane belongs to one weight row, and many columns share a turned block.
//!
//! Turning costs some instructions per block and saves the sums across lanes, so it pays from a few columns on. The
//! integers are the same as those of the row kernels, and so is the order of the float sums: the bits are equal.
//!
//! A macro, because a function belongs to one instruction set. It takes the block of activations and the type of a
//! turned block with its parameters, and expects `ROWS`, `TOGETHER` and `lanes::{zero_floats, store_floats}`.

macro_rules! tile_loops {
    ($features:literal, $block:ty, $tile:ty, [$($parameters:tt)*]) => {
        /// Columns from which turning the weights pays.
        pub(super) const LEAST_COLUMNS: usize = 4;
        /// Columns that share one turned block.
        const COLUMNS: usize = 128;

        /// Multiplies whole tiles of rows; returns how many rows that were.
        #[inline]
        #[target_feature(enable = $features)]
        pub(super) fn multiply<const BYTES: usize, $($parameters)*>(
            weights: WeightRows<'_>,
            x: Rows<'_, $block>,
            out: &mut TileMut<'_>,
            turn: impl Fn(&[&[u8; BYTES]; ROWS]) -> $tile,
        ) -> usize {
            let rows = weights.count() / ROWS * ROWS;
            for first in (0..rows).step_by(ROWS) {
                for start in (0..x.count()).step_by(COLUMNS) {
                    let columns = (x.count() - start).min(COLUMNS);
                    let mut sums = [zero_floats(); COLUMNS];
                    for at in 0..x.length() {
                        let mut blocks = [&weights.row(first).as_chunks::<BYTES>().0[at]; ROWS];
                        for (row, block) in blocks.iter_mut().enumerate() {
                            *block = &weights.row(first + row).as_chunks::<BYTES>().0[at];
                        }
                        let tile = turn(&blocks);
                        let block = |column: usize| &x.row(start + column)[at];
                        let mut done = 0;
                        while done + TOGETHER <= columns {
                            let together = std::array::from_fn(|column| block(done + column));
                            tile.add::<TOGETHER>(together, &mut sums[done..]);
                            done += TOGETHER;
                        }
                        while done < columns {
                            tile.add::<1>([block(done)], &mut sums[done..]);
                            done += 1;
                        }
                    }
                    for (column, sums) in sums[..columns].iter().enumerate() {
                        store_floats(*sums, &mut out.row(start + column)[first..first + ROWS]);
                    }
                }
            }
            rows
        }
    };
}

pub(crate) use tile_loops;
