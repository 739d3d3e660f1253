//! Float matrices: four rows at a time for one column, or one row for four columns.
//!
//! A macro, because a function belongs to one instruction set. It expects `Lanes16`, sixteen floats, and `reduce4`.

macro_rules! float_kernels {
    ($features:literal) => {
        /// Multiplies rows of `WIDTH`-byte numbers; `load` widens sixteen of them.
        #[inline]
        #[target_feature(enable = $features)]
        fn multiply<const BYTES: usize>(
            weights: WeightRows<'_>,
            x: Rows<'_, f32>,
            out: &mut TileMut<'_>,
            load: impl Fn(&[u8; BYTES]) -> Lanes16,
        ) {
            let columns = x.count();
            let wide = columns / 4 * 4;
            for column in (0..wide).step_by(4) {
                let x: [&[f32]; 4] = [x.row(column), x.row(column + 1), x.row(column + 2), x.row(column + 3)];
                for row in 0..weights.count() {
                    let weights = [weights.row(row)];
                    let sums = reduce4(sums(x, weights, &load, |sums, w, x| {
                        for at in 0..4 {
                            sums[at] = sums[at].add_product(w[0], x[at]);
                        }
                    }));
                    sums.iter().enumerate().for_each(|(at, &sum)| out.row(column + at)[row] = sum);
                }
            }
            for four in 0..weights.fours() {
                for column in wide..columns {
                    let sums = reduce4(sums([x.row(column)], weights.four(four), &load, |sums, w, x| {
                        for at in 0..4 {
                            sums[at] = sums[at].add_product(w[at], x[0]);
                        }
                    }));
                    out.put4(column, four, sums);
                }
            }
        }

        /// Runs `step` over sixteen columns of all rows at a time; a last short run is filled up with zeros.
        #[inline]
        #[target_feature(enable = $features)]
        fn sums<const BYTES: usize, const X: usize, const W: usize>(
            x: [&[f32]; X],
            weights: [&[u8]; W],
            load: &impl Fn(&[u8; BYTES]) -> Lanes16,
            step: impl Fn(&mut [Lanes16; 4], [Lanes16; W], [Lanes16; X]),
        ) -> [Lanes16; 4] {
            let mut sums = [Lanes16::zero(); 4];
            let chunks = x[0].len() / 16;
            let x_chunks = x.map(|x| &x.as_chunks::<16>().0[..chunks]);
            let w_chunks = weights.map(|w| &w.as_chunks::<BYTES>().0[..chunks]);
            for at in 0..chunks {
                let mut xs = [Lanes16::zero(); X];
                let mut ws = [Lanes16::zero(); W];
                for (lanes, x) in xs.iter_mut().zip(&x_chunks) {
                    *lanes = Lanes16::load(&x[at]);
                }
                for (lanes, w) in ws.iter_mut().zip(&w_chunks) {
                    *lanes = load(&w[at]);
                }
                step(&mut sums, ws, xs);
            }
            if !x[0].len().is_multiple_of(16) {
                let mut xs = [Lanes16::zero(); X];
                let mut ws = [Lanes16::zero(); W];
                for (lanes, x) in xs.iter_mut().zip(&x) {
                    *lanes = Lanes16::load(&crate::scalar::float::padded(x.as_chunks::<16>().1));
                }
                for (lanes, w) in ws.iter_mut().zip(&weights) {
                    let rest = w.as_chunks::<BYTES>().1;
                    let mut full = [0; BYTES];
                    full[..rest.len()].copy_from_slice(rest);
                    *lanes = load(&full);
                }
                step(&mut sums, ws, xs);
            }
            sums
        }

        #[target_feature(enable = $features)]
        pub(super) fn multiply_f32(weights: WeightRows<'_>, x: Rows<'_, f32>, out: &mut TileMut<'_>) {
            multiply::<64>(weights, x, out, |bytes| Lanes16::load(&floats(bytes)));
        }

        #[target_feature(enable = $features)]
        pub(super) fn multiply_f16(weights: WeightRows<'_>, x: Rows<'_, f32>, out: &mut TileMut<'_>) {
            multiply::<32>(weights, x, out, |bytes| Lanes16::load_halves(&words(bytes)));
        }

        #[target_feature(enable = $features)]
        pub(super) fn multiply_bf16(weights: WeightRows<'_>, x: Rows<'_, f32>, out: &mut TileMut<'_>) {
            multiply::<32>(weights, x, out, |bytes| Lanes16::load_brain(&words(bytes)));
        }

        #[target_feature(enable = $features)]
        pub(super) fn multiply_f8(weights: WeightRows<'_>, x: Rows<'_, f32>, out: &mut TileMut<'_>) {
            multiply::<16>(weights, x, out, |bytes| Lanes16::load_bytes(bytes));
        }

        /// Sixteen little-endian floats; the compiler sees that this is a plain load.
        #[inline]
        fn floats(bytes: &[u8; 64]) -> [f32; 16] {
            let words = bytes.as_chunks::<4>().0;
            std::array::from_fn(|at| f32::from_le_bytes(words[at]))
        }

        /// Sixteen little-endian 16-bit words; the compiler sees that this is a plain load.
        #[inline]
        fn words(bytes: &[u8; 32]) -> [u16; 16] {
            let words = bytes.as_chunks::<2>().0;
            std::array::from_fn(|at| u16::from_le_bytes(words[at]))
        }
    };
}

pub(crate) use float_kernels;
