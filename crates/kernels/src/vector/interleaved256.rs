//! The loops around interleaved blocks of 256: every lane belongs to one weight row, and columns share unpacked quants.
//!
//! Weights that lie row by row are interleaved block by block on the way, which pays from a few columns on. The
//! integers are the same as those of the row kernels, and so is the order of the float sums: the bits are equal.
//!
//! A macro, because a function belongs to one instruction set. It expects the contents of that set's `words.rs` and
//! `turn` in scope.

macro_rules! interleaved256_loops {
    ($features:literal) => {
        /// Rows that are multiplied together.
        const UNIT: usize = GROUPS * GROUP_ROWS;

        /// One block of the rows of a unit.
        struct Piece<'a, const W: usize> {
            words: [&'a [[u8; GROUP_WORD]; W]; GROUPS],
            halves: [&'a [u8; GROUP_HALF]; GROUPS],
            /// How far from where lies what will be multiplied soon.
            soon: [(&'a [u8], usize); GROUPS],
            /// Into which cache it is to come.
            cache: ReadAhead,
        }

        /// A share of what will be multiplied soon, to be asked for bit by bit: all at once, other loads would wait.
        #[derive(Clone, Copy)]
        struct Soon<'a> {
            stretches: [(&'a [u8], usize); GROUPS],
            /// Bytes of each stretch to ask for at a time.
            length: usize,
            cache: ReadAhead,
        }

        impl<'a> Soon<'a> {
            /// The share of one of `sets` of columns, each of which asks eight times.
            #[inline]
            fn share<const W: usize>(piece: &Piece<'a, W>, set: usize, sets: usize) -> Soon<'a> {
                let length = (W * GROUP_WORD).div_ceil(8 * sets);
                let stretches = piece.soon.map(|(near, distance)| (near, distance + 8 * set * length));
                Soon { stretches, length, cache: piece.cache }
            }

            #[inline]
            #[target_feature(enable = $features)]
            fn ask(&self, run: usize) {
                for (near, distance) in self.stretches {
                    prefetch_into(self.cache, near, (distance.wrapping_add(run * self.length), self.length));
                }
            }

            /// Asks eight times at once.
            #[inline]
            #[target_feature(enable = $features)]
            fn ask_all(&self) {
                for (near, distance) in self.stretches {
                    prefetch_into(self.cache, near, (distance, 8 * self.length));
                }
            }
        }

        /// What all quants of a block share, for the rows of one register.
        #[derive(Clone, Copy)]
        struct Header<const G: usize, const P: usize> {
            /// What the sums of each group are multiplied with.
            factors: [Words; G],
            /// 16-bit factors of pairs of partial sums of x that are to be subtracted.
            offsets: [Words; P],
            scale: Floats,
            /// Scale of the offsets, where they have one of their own.
            minimum: Floats,
        }

        /// How to read a format: the header of a block, and four quants of every row by run of 32, word and register.
        struct Unpack<F, H, Q> {
            format: F,
            header: H,
            quants: Q,
        }

        /// Multiplies interleaved rows.
        #[inline]
        #[target_feature(enable = $features)]
        fn multiply<
            const C: usize,
            const N: usize,
            const BYTES: usize,
            const W: usize,
            const G: usize,
            const P: usize,
            F,
            H,
            Q,
        >(
            rows: InterleavedRows<'_>,
            x: Rows<'_, Int8Block256>,
            out: &mut TileMut<'_>,
            unpack: &Unpack<F, H, Q>,
        ) where
            F: Format<BYTES>,
            H: Fn(&Piece<'_, W>, usize) -> Header<G, P>,
            Q: Fn(&Piece<'_, W>, usize, usize, usize) -> Words,
        {
            const NO_HALVES: [u8; GROUP_HALF] = [0; GROUP_HALF];
            let last = rows.count() - 1;
            let mut quants = [[splat(0); VECTORS]; 64];
            let chunk = chunk(x.count(), C, TOGETHER);
            let ahead = Ahead::new(rows.ahead, x.length(), (W * GROUP_WORD, GROUPS * rows.group_bytes));
            for start in (0..x.count()).step_by(chunk) {
                for first in (0..out.width()).step_by(UNIT) {
                    // A last short unit repeats its last group and drops the copy.
                    let group = |at: usize| rows.group((first / GROUP_ROWS + at).min(last));
                    let words: [_; GROUPS] = std::array::from_fn(|at| group(at).as_chunks().0.as_chunks::<W>().0);
                    let halves: [_; GROUPS] = std::array::from_fn(|at| &group(at)[x.length() * W * GROUP_WORD..]);
                    let halves = halves.map(|bytes| bytes.as_chunks().0);
                    let mut sums = [[splat_float(0.0); VECTORS]; C];
                    let columns = (x.count() - start).min(chunk);
                    for at in 0..x.length() {
                        let halves = halves.map(|halves| if F::OWN_MINIMUM { &NO_HALVES } else { &halves[at] });
                        let distance = ahead.bytes(at, W * GROUP_WORD);
                        let soon = words.map(|words| (words[at].as_flattened(), distance));
                        let piece = Piece { words: words.map(|words| &words[at]), halves, soon, cache: rows.ahead };
                        // Where there are fewer columns than are multiplied together, the last repeats.
                        let column = |column: usize| &x.row(start + column.min(columns - 1))[at];
                        match C {
                            ..=FEW => {
                                let sums = &mut sums[..columns.next_multiple_of(N)];
                                accumulate_few::<N, _, _, _, _, _, _, _>(&piece, column, sums, unpack);
                            }
                            _ => {
                                let sums = &mut sums[..columns];
                                accumulate_many::<N, _, _, _, _, _, _, _>(&piece, column, (&mut quants, sums), unpack);
                            }
                        }
                    }
                    store_sums(&sums[..columns], start, first, out);
                }
            }
        }

        /// Multiplies rows that lie one after the other.
        #[inline]
        #[target_feature(enable = $features)]
        fn multiply_turned<
            const C: usize,
            const N: usize,
            const BYTES: usize,
            const W: usize,
            const G: usize,
            const P: usize,
            F,
            H,
            Q,
        >(
            rows: WeightRows<'_>,
            x: Rows<'_, Int8Block256>,
            out: &mut TileMut<'_>,
            unpack: &Unpack<F, H, Q>,
        ) where
            F: Format<BYTES>,
            H: Fn(&Piece<'_, W>, usize) -> Header<G, P>,
            Q: Fn(&Piece<'_, W>, usize, usize, usize) -> Words,
        {
            let last = rows.count() - 1;
            let mut words = [[[0; GROUP_WORD]; W]; GROUPS];
            let mut halves = [[0; GROUP_HALF]; GROUPS];
            let mut quants = [[splat(0); VECTORS]; 64];
            let chunk = chunk(x.count(), C, TOGETHER);
            for start in (0..x.count()).step_by(chunk) {
                for first in (0..rows.count()).step_by(UNIT) {
                    let mut sums = [[splat_float(0.0); VECTORS]; C];
                    let columns = (x.count() - start).min(chunk);
                    // Rows past the end repeat the last one and are dropped.
                    let mut unit = [[&rows.row(first).as_chunks::<BYTES>().0[..x.length()]; GROUP_ROWS]; GROUPS];
                    for (index, blocks) in unit.as_flattened_mut().iter_mut().enumerate() {
                        *blocks = &rows.row((first + index).min(last)).as_chunks::<BYTES>().0[..x.length()];
                    }
                    for at in 0..x.length() {
                        for group in 0..GROUPS {
                            let mut blocks = [&unit[group][0][at]; GROUP_ROWS];
                            for (block, row) in blocks.iter_mut().zip(unit[group]) {
                                *block = &row[at];
                            }
                            turn(&blocks, 0, &mut words[group]);
                            if !F::OWN_MINIMUM {
                                let scales = halves[group].as_chunks_mut::<2>().0;
                                scales.iter_mut().zip(blocks).for_each(|(half, block)| *half = pair(block, F::SCALE));
                            }
                        }
                        // The rows that come next lie in one piece.
                        let soon = std::array::from_fn(|group| {
                            (rows.row(first), (UNIT + GROUP_ROWS * group) * rows.row_bytes + GROUP_ROWS * at * BYTES)
                        });
                        let (words, halves) = (words.each_ref(), halves.each_ref());
                        let piece = Piece { words, halves, soon, cache: ReadAhead::L1(0) };
                        // Where there are fewer columns than are multiplied together, the last repeats.
                        let column = |column: usize| &x.row(start + column.min(columns - 1))[at];
                        match C {
                            ..=FEW => {
                                let sums = &mut sums[..columns.next_multiple_of(N)];
                                accumulate_few::<N, _, _, _, _, _, _, _>(&piece, column, sums, unpack);
                            }
                            _ => {
                                let sums = &mut sums[..columns];
                                accumulate_many::<N, _, _, _, _, _, _, _>(&piece, column, (&mut quants, sums), unpack);
                            }
                        }
                    }
                    store_sums(&sums[..columns], start, first, out);
                }
            }
        }

        /// Adds one block times one column per entry of `sums`, `N` at a time; quants are unpacked for each set of them.
        #[inline]
        #[target_feature(enable = $features)]
        fn accumulate_few<
            'x,
            const N: usize,
            const BYTES: usize,
            const W: usize,
            const G: usize,
            const P: usize,
            F,
            H,
            Q,
        >(
            piece: &Piece<'_, W>,
            x: impl Fn(usize) -> &'x Int8Block256,
            sums: &mut [[Floats; VECTORS]],
            unpack: &Unpack<F, H, Q>,
        ) where
            F: Format<BYTES>,
            H: Fn(&Piece<'_, W>, usize) -> Header<G, P>,
            Q: Fn(&Piece<'_, W>, usize, usize, usize) -> Words,
        {
            let headers = per_vector(|vector| (unpack.header)(piece, vector));
            let sets = sums.as_chunks_mut::<N>().0;
            let all = sets.len();
            for (set, sums) in sets.iter_mut().enumerate() {
                let together: [_; N] = std::array::from_fn(|column| x(N * set + column));
                add_few((piece, Soon::share(piece, set, all)), &headers, together, sums, unpack);
            }
        }

        /// The same for many columns, which share the unpacked quants.
        #[inline]
        #[target_feature(enable = $features)]
        fn accumulate_many<
            'x,
            const N: usize,
            const BYTES: usize,
            const W: usize,
            const G: usize,
            const P: usize,
            F,
            H,
            Q,
        >(
            piece: &Piece<'_, W>,
            x: impl Fn(usize) -> &'x Int8Block256,
            (quants, sums): (&mut [[Words; VECTORS]; 64], &mut [[Floats; VECTORS]]),
            unpack: &Unpack<F, H, Q>,
        ) where
            F: Format<BYTES>,
            H: Fn(&Piece<'_, W>, usize) -> Header<G, P>,
            Q: Fn(&Piece<'_, W>, usize, usize, usize) -> Words,
        {
            let headers = per_vector(|vector| (unpack.header)(piece, vector));
            for (at, quants) in quants.iter_mut().enumerate() {
                for vector in 0..VECTORS {
                    quants[vector] = (unpack.quants)(piece, at / 8, at % 8, vector);
                }
            }
            let (sets, rest) = sums.as_chunks_mut::<N>();
            let (all, done) = (sets.len(), N * sets.len());
            for (set, sums) in sets.iter_mut().enumerate() {
                Soon::share(piece, set, all).ask_all();
                let together: [_; N] = std::array::from_fn(|column| x(N * set + column));
                add_many(&unpack.format, quants, (&headers, together), sums);
            }
            let (pairs, last) = rest.as_chunks_mut::<2>();
            for (pair, sums) in pairs.iter_mut().enumerate() {
                add_many(&unpack.format, quants, (&headers, [x(done + 2 * pair), x(done + 2 * pair + 1)]), sums);
            }
            for sums in last.as_chunks_mut::<1>().0 {
                add_many(&unpack.format, quants, (&headers, [x(done + 2 * pairs.len())]), sums);
            }
        }

        /// Adds a block times a few columns, unpacking its quants on the way.
        #[inline]
        #[target_feature(enable = $features)]
        fn add_few<const N: usize, const BYTES: usize, const W: usize, const G: usize, const P: usize, F, H, Q>(
            (piece, soon): (&Piece<'_, W>, Soon<'_>),
            headers: &[Header<G, P>; VECTORS],
            x: [&Int8Block256; N],
            sums: &mut [[Floats; VECTORS]; N],
            unpack: &Unpack<F, H, Q>,
        ) where
            F: Format<BYTES>,
            Q: Fn(&Piece<'_, W>, usize, usize, usize) -> Words,
        {
            let mut totals = [[splat(0); VECTORS]; N];
            for run in 0..8 {
                soon.ask(run);
                let quants = |word: usize, vector: usize| (unpack.quants)(piece, run, word, vector);
                add_run(&unpack.format, quants, run, (headers, x), &mut totals);
            }
            finish(&unpack.format, (headers, x), &totals, sums);
        }

        /// Adds a block times some columns.
        #[target_feature(enable = $features)]
        fn add_many<const N: usize, const BYTES: usize, const G: usize, const P: usize, F: Format<BYTES>>(
            format: &F,
            quants: &[[Words; VECTORS]; 64],
            (headers, x): (&[Header<G, P>; VECTORS], [&Int8Block256; N]),
            sums: &mut [[Floats; VECTORS]; N],
        ) {
            let mut totals = [[splat(0); VECTORS]; N];
            for (run, quants) in quants.as_chunks::<8>().0.iter().enumerate() {
                add_run(format, |word, vector| quants[word][vector], run, (headers, x), &mut totals);
            }
            finish(format, (headers, x), &totals, sums);
        }

        /// Adds the products of 32 quants of every row to the totals.
        #[inline]
        #[target_feature(enable = $features)]
        fn add_run<const N: usize, const BYTES: usize, const G: usize, const P: usize, F: Format<BYTES>>(
            _format: &F,
            quants: impl Fn(usize, usize) -> Words,
            run: usize,
            (headers, x): (&[Header<G, P>; VECTORS], [&Int8Block256; N]),
            totals: &mut [[Words; VECTORS]; N],
        ) {
            let summed = const { summed(F::GREATEST, 64 / G) };
            for step in 0..8 / summed {
                let mut products = [[splat(0); VECTORS]; N];
                for word in summed * step..summed * (step + 1) {
                    let mut unpacked = [splat(0); VECTORS];
                    for vector in 0..VECTORS {
                        unpacked[vector] = quants(word, vector);
                    }
                    for column in 0..N {
                        let values = splat_bytes(x[column].four(32 * run + 4 * word));
                        for vector in 0..VECTORS {
                            products[column][vector] = dot(products[column][vector], unpacked[vector], values);
                        }
                    }
                }
                let group = (8 * run + summed * step) / (64 / G);
                for column in 0..N {
                    for vector in 0..VECTORS {
                        let factors = headers[vector].factors[group];
                        let total = &mut totals[column][vector];
                        *total = add_scaled(F::GREATEST, *total, products[column][vector], factors);
                    }
                }
            }
        }

        /// Turns the integers of a block into floats and adds them to the sums.
        #[inline]
        #[target_feature(enable = $features)]
        fn finish<const N: usize, const BYTES: usize, const G: usize, const P: usize, F: Format<BYTES>>(
            _format: &F,
            (headers, x): (&[Header<G, P>; VECTORS], [&Int8Block256; N]),
            totals: &[[Words; VECTORS]; N],
            sums: &mut [[Floats; VECTORS]; N],
        ) {
            for column in 0..N {
                let mut offsets = [splat(0); VECTORS];
                for pair in 0..P {
                    let sums = if F::OWN_MINIMUM { x[column].wide_pair(pair) } else { x[column].narrow_pair(pair) };
                    let sums = splat_pair(sums);
                    for vector in 0..VECTORS {
                        offsets[vector] = add_pairs(offsets[vector], headers[vector].offsets[pair], sums);
                    }
                }
                let x_scale = splat_float(x[column].scale);
                for vector in 0..VECTORS {
                    let Header { scale, minimum, .. } = headers[vector];
                    let (sum, total, scale) =
                        (sums[column][vector], totals[column][vector], multiply_floats(scale, x_scale));
                    sums[column][vector] = if F::OWN_MINIMUM {
                        let sum = add_product(sum, scale, total);
                        subtract_product(sum, multiply_floats(minimum, x_scale), offsets[vector])
                    } else {
                        add_product(sum, scale, subtract(total, offsets[vector]))
                    };
                }
            }
        }
    };
}

pub(crate) use interleaved256_loops;
