//! From the float lanes of some weight rows to the output.
//!
//! A macro, because a function belongs to one instruction set. It expects `Floats`, `VECTORS`, `GROUPS` and `store`.

macro_rules! store_sums {
    ($features:literal) => {
        /// Stores the sums of the rows from `first` on, for the columns of x from `start` on.
        #[inline]
        #[target_feature(enable = $features)]
        pub(crate) fn store_sums(sums: &[[Floats; VECTORS]], start: usize, first: usize, out: &mut TileMut<'_>) {
            const UNIT: usize = GROUPS * GROUP_ROWS;
            let kept = (out.width() - first).min(UNIT);
            for (column, sums) in sums.iter().enumerate() {
                let mut row = [0.0; UNIT];
                for (vector, out) in row.as_chunks_mut().0.iter_mut().enumerate() {
                    store(sums[vector], out);
                }
                match out.row(start + column)[first..].first_chunk_mut() {
                    Some(out) => *out = row,
                    None => out.row(start + column)[first..].copy_from_slice(&row[..kept]),
                }
            }
        }
    };
}

pub(crate) use store_sums;
