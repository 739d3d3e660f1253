//! The loops around the 256-block kernels: four weight rows at a time, one lane of the float sums per row.
//!
//! A macro, because a function belongs to one instruction set, and closures take the place of a trait for the same
//! reason. `head` unpacks what a block of four rows has beside its quants, `row` the quants and scales of one of them,
//! `products` multiplies these with a block of x, and `add` makes of the products of four rows floats. The macro expects
//! `Floats4`, four floats, `zero4`, `store4` and `read_ahead` in scope.

macro_rules! four_row_loops {
    ($features:literal, $register:ty, $zeros:expr) => {
        /// Columns that share one unpacking of the weights, where there are many.
        const COLUMNS: usize = 64;

        /// Multiplies weight rows.
        #[inline]
        #[target_feature(enable = $features)]
        fn multiply<const BYTES: usize, Head, Row>(
            weights: WeightRows<'_>,
            x: Rows<'_, Int8Block256>,
            out: &mut TileMut<'_>,
            kernel: (
                impl Fn([&[u8; BYTES]; 4]) -> Head,
                impl Fn(&[u8; BYTES], &Head, usize) -> Row,
                impl Fn(&Row, &Int8Block256) -> $register,
                impl Fn(Floats4, &Head, [$register; 4], &Int8Block256) -> Floats4,
            ),
        ) {
            match x.count() {
                1 => multiply_columns::<1, BYTES, Head, Row>(weights, x, out, &kernel),
                2 => multiply_columns::<2, BYTES, Head, Row>(weights, x, out, &kernel),
                3 => multiply_columns::<3, BYTES, Head, Row>(weights, x, out, &kernel),
                _ => multiply_many(weights, x, out, &kernel),
            }
        }

        /// Multiplies weight rows, four at a time, with `N` columns.
        #[inline]
        #[target_feature(enable = $features)]
        fn multiply_columns<const N: usize, const BYTES: usize, Head, Row>(
            weights: WeightRows<'_>,
            x: Rows<'_, Int8Block256>,
            out: &mut TileMut<'_>,
            (head, row, products, add): &(
                impl Fn([&[u8; BYTES]; 4]) -> Head,
                impl Fn(&[u8; BYTES], &Head, usize) -> Row,
                impl Fn(&Row, &Int8Block256) -> $register,
                impl Fn(Floats4, &Head, [$register; 4], &Int8Block256) -> Floats4,
            ),
        ) {
            let length = x.length();
            let mut columns = [&x.row(0)[..length]; N];
            columns.iter_mut().enumerate().for_each(|(column, blocks)| *blocks = &x.row(column)[..length]);
            for four in 0..weights.fours() {
                let [a, b, c, d] = weights.four(four).map(|row| &row.as_chunks::<BYTES>().0[..length]);
                let mut sums = [zero4(); N];
                for at in 0..length {
                    let (a, b, c, d) = (&a[at], &b[at], &c[at], &d[at]);
                    read_ahead(weights.ahead, [a, b, c, d]);
                    let head = head([a, b, c, d]);
                    // One row after the other, so that its quants never leave the registers.
                    let mut all = [[$zeros; 4]; N];
                    macro_rules! row_products {
                        ($block:ident, $row:literal) => {
                            let unpacked = row($block, &head, $row);
                            for column in 0..N {
                                all[column][$row] = products(&unpacked, &columns[column][at]);
                            }
                        };
                    }
                    row_products!(a, 0);
                    row_products!(b, 1);
                    row_products!(c, 2);
                    row_products!(d, 3);
                    for column in 0..N {
                        sums[column] = add(sums[column], &head, all[column], &columns[column][at]);
                    }
                }
                for column in 0..N {
                    out.put4(column, four, store4(sums[column]));
                }
            }
        }

        /// Multiplies weight rows, four at a time, with many columns.
        #[target_feature(enable = $features)]
        fn multiply_many<const BYTES: usize, Head, Row>(
            weights: WeightRows<'_>,
            x: Rows<'_, Int8Block256>,
            out: &mut TileMut<'_>,
            (head, row, products, add): &(
                impl Fn([&[u8; BYTES]; 4]) -> Head,
                impl Fn(&[u8; BYTES], &Head, usize) -> Row,
                impl Fn(&Row, &Int8Block256) -> $register,
                impl Fn(Floats4, &Head, [$register; 4], &Int8Block256) -> Floats4,
            ),
        ) {
            for four in 0..weights.fours() {
                let [a, b, c, d] = weights.four(four).map(|row| row.as_chunks::<BYTES>().0);
                for tile in (0..x.count()).step_by(COLUMNS) {
                    let columns = (x.count() - tile).min(COLUMNS);
                    let mut sums = [zero4(); COLUMNS];
                    for at in 0..x.length() {
                        read_ahead(weights.ahead, [&a[at], &b[at], &c[at], &d[at]]);
                        let head = head([&a[at], &b[at], &c[at], &d[at]]);
                        let [a, b, c, d] = [
                            row(&a[at], &head, 0),
                            row(&b[at], &head, 1),
                            row(&c[at], &head, 2),
                            row(&d[at], &head, 3),
                        ];
                        for (column, sums) in sums[..columns].iter_mut().enumerate() {
                            let x = &x.row(tile + column)[at];
                            let products = [products(&a, x), products(&b, x), products(&c, x), products(&d, x)];
                            *sums = add(*sums, &head, products, x);
                        }
                    }
                    for (column, sums) in sums[..columns].iter().enumerate() {
                        out.put4(tile + column, four, store4(*sums));
                    }
                }
            }
        }
    };
}

pub(crate) use four_row_loops;
