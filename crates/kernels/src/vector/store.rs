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
            for (column, sums) in sums.iter().enumerate() {
                let out = &mut out.row(start + column)[first..];
                match out.first_chunk_mut::<UNIT>() {
                    Some(out) => store_row(sums, out),
                    None => {
                        let mut row = [0.0; UNIT];
                        store_row(sums, &mut row);
                        out.copy_from_slice(&row[..out.len()]);
                    }
                }
            }
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn store_row(sums: &[Floats; VECTORS], out: &mut [f32; GROUPS * GROUP_ROWS]) {
            for (vector, out) in out.as_chunks_mut().0.iter_mut().enumerate() {
                store(sums[vector], out);
            }
        }
    };
}

pub(crate) use store_sums;
