//! The loops around the 256-block kernels: four weight rows at a time, one lane of the float sums per row.
//!
//! A macro, because a function belongs to one instruction set, and closures take the place of a trait for the same
//! reason. `head` unpacks what a block of four rows has beside its quants, `row` the quants and scales of one of them,
//! `products` multiplies these with a block of x, and `add` makes of the products of four rows floats. The macro expects
//! `Floats4`, four floats, `zero4`, `store4` and `read_ahead` in scope.

macro_rules! four_row_loops {
    ($features:literal, $register:ty) => {
        /// Columns that share one unpacking of the weights.
        const COLUMNS: usize = 64;

        /// Multiplies weight rows, four at a time.
        #[inline]
        #[target_feature(enable = $features)]
        fn multiply<const BYTES: usize, Head, Row>(
            weights: WeightRows<'_>,
            x: Rows<'_, Int8Block256>,
            out: &mut TileMut<'_>,
            (head, row, products, add): (
                impl Fn([&[u8; BYTES]; 4]) -> Head,
                impl Fn(&[u8; BYTES], &Head, usize) -> Row,
                impl Fn(&Row, &Int8Block256) -> $register,
                impl Fn(Floats4, &Head, [$register; 4], &Int8Block256) -> Floats4,
            ),
        ) {
            for four in 0..weights.fours() {
                let [a, b, c, d] = weights.four(four).map(|row| row.as_chunks::<BYTES>().0);
                if x.count() == 1 {
                    let mut sums = zero4();
                    for ((((x, a), b), c), d) in x.row(0).iter().zip(a).zip(b).zip(c).zip(d) {
                        read_ahead(weights.ahead, [a, b, c, d]);
                        let head = head([a, b, c, d]);
                        // One row after the other, so that its quants never leave the registers.
                        let product = |block, at| products(&row(block, &head, at), x);
                        sums = add(sums, &head, [product(a, 0), product(b, 1), product(c, 2), product(d, 3)], x);
                    }
                    out.put4(0, four, store4(sums));
                    continue;
                }
                for tile in (0..x.count()).step_by(COLUMNS) {
                    let columns = (x.count() - tile).min(COLUMNS);
                    let mut sums = [zero4(); COLUMNS];
                    for at in 0..x.length() {
                        read_ahead(weights.ahead, [&a[at], &b[at], &c[at], &d[at]]);
                        let head = head([&a[at], &b[at], &c[at], &d[at]]);
                        let blocks = [
                            row(&a[at], &head, 0),
                            row(&b[at], &head, 1),
                            row(&c[at], &head, 2),
                            row(&d[at], &head, 3),
                        ];
                        for (column, sums) in sums[..columns].iter_mut().enumerate() {
                            let x = &x.row(tile + column)[at];
                            let [a, b, c, d] = &blocks;
                            let products = [products(a, x), products(b, x), products(c, x), products(d, x)];
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
