//! The loop around formats of nibbles times few columns: four runs of 32 of four rows at a time, because a run is so
//! small that scaling each by itself would take longer than reading it.
//!
//! A macro, because a function belongs to one instruction set. It expects `FourBlocks` in scope, four blocks of
//! activations in the form that they are multiplied in, `Nibbles`, `store4` and `read_ahead`.

macro_rules! four_blocks_loop {
    ($features:literal) => {
        /// Fours of rows that share activations in the form of [`FourBlocks`], and how many of these are kept at hand.
        const SHARING: usize = 8;
        const AT_HAND: usize = 16;

        /// Multiplies rows with fewer than [`LEAST_TURNED`] columns.
        #[inline]
        #[target_feature(enable = $features)]
        fn multiply<const BYTES: usize, F: Nibbles<BYTES>>(
            weights: WeightRows<'_>,
            x: Rows<'_, Int8Block32>,
            out: &mut TileMut<'_>,
        ) {
            match x.count() {
                1 => multiply_columns::<1, BYTES, F>(weights, x, out),
                2 => multiply_columns::<2, BYTES, F>(weights, x, out),
                LEAST_TURNED.. => unreachable!("many columns are multiplied with turned rows"),
                _ => multiply_columns::<3, BYTES, F>(weights, x, out),
            }
        }

        /// Multiplies rows, four at a time, with `N` columns; a lane of the float sums belongs to a row.
        #[target_feature(enable = $features)]
        fn multiply_columns<const N: usize, const BYTES: usize, F: Nibbles<BYTES>>(
            weights: WeightRows<'_>,
            x: Rows<'_, Int8Block32>,
            out: &mut TileMut<'_>,
        ) {
            let mut columns = [x.row(0); N];
            columns.iter_mut().enumerate().for_each(|(column, blocks)| *blocks = x.row(column));
            let whole = x.length() / 4;
            let none = FourBlocks::new::<BYTES, F>(&[Int8Block32::ZERO; 4]);
            for first in (0..weights.fours()).step_by(SHARING) {
                let fours = first..weights.fours().min(first + SHARING);
                let mut sums = [[zero4(); N]; SHARING];
                for part in (0..whole).step_by(AT_HAND) {
                    let mut at_hand = [[none; N]; AT_HAND];
                    let at_hand = &mut at_hand[..AT_HAND.min(whole - part)];
                    for column in 0..N {
                        let x = &columns[column].as_chunks::<4>().0[part..];
                        for (at_hand, x) in at_hand.iter_mut().zip(x) {
                            at_hand[column] = FourBlocks::new::<BYTES, F>(x);
                        }
                    }
                    for (four, sums) in fours.clone().zip(&mut sums) {
                        let [a, b, c, d] = weights.four(four).map(|row| &row.as_chunks::<BYTES>().0[part..]);
                        for ((((x, a), b), c), d) in at_hand.iter().zip(a).zip(b).zip(c).zip(d) {
                            read_ahead(weights.ahead, [a, b, c, d]);
                            add_products::<N, BYTES, F>(sums, [a, b, c, d], x, 0);
                        }
                    }
                }
                if 4 * whole < x.length() {
                    // The last four runs, of which the first were added already.
                    let mut last = [none; N];
                    for column in 0..N {
                        last[column] = FourBlocks::new::<BYTES, F>(&last_of(columns[column], Int8Block32::ZERO));
                    }
                    for (four, sums) in fours.clone().zip(&mut sums) {
                        let rows = weights.four(four);
                        let skipped = 4 - x.length() % 4;
                        if let [Some(a), Some(b), Some(c), Some(d)] = rows.map(|row| row.last_chunk()) {
                            add_products::<N, BYTES, F>(sums, [a, b, c, d], &last, skipped);
                        } else {
                            let rows = rows.map(|row| last_of::<_, BYTES>(row, 0));
                            add_products::<N, BYTES, F>(sums, rows.each_ref(), &last, skipped);
                        }
                    }
                }
                for (four, sums) in fours.zip(sums) {
                    for column in 0..N {
                        out.put4(column, four, store4(sums[column]));
                    }
                }
            }
        }

        /// The last `N` of some values; where there are fewer, they follow others.
        #[inline]
        fn last_of<T: Copy, const N: usize>(values: &[T], other: T) -> [T; N] {
            match values.last_chunk() {
                Some(last) => *last,
                None => {
                    let mut filled = [other; N];
                    filled[N - values.len()..].copy_from_slice(values);
                    filled
                }
            }
        }
    };
}

pub(crate) use four_blocks_loop;
