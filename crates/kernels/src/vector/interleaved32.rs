//! Interleaved blocks of 32: every lane belongs to one weight row, and columns share unpacked quants.
//!
//! Weights that lie row by row are interleaved some blocks at a time on the way. Macros, because a function belongs to
//! one instruction set. They expect the contents of that set's `words.rs` and `turn` in scope.

/// Interleaved rows; the functions `many_q8_0`, `many_q4_0` and `many_int4` multiply them with many columns.
macro_rules! interleaved32_kernels {
    ($features:literal) => {
        /// Rows that are multiplied together.
        const UNIT: usize = GROUPS * GROUP_ROWS;
        /// Blocks that are multiplied with many columns while they are in the nearest cache.
        const SLAB: usize = 8;
        /// Blocks of a row that count as few.
        const SHORT: usize = 4;
        /// How far such rows are asked for in advance.
        const AHEAD: usize = 4096;

        /// One block of the rows of a unit.
        type Block<'a, const W: usize> = [&'a [[u8; GROUP_WORD]; W]; GROUPS];

        /// Some blocks of the rows of a unit.
        struct Slab<'a, const W: usize> {
            words: [&'a [[[u8; GROUP_WORD]; W]]; GROUPS],
            halves: [&'a [[u8; GROUP_HALF]]; GROUPS],
            /// What is added to every number, in formats that have it.
            minima: Option<[&'a [[u8; GROUP_HALF]]; GROUPS]>,
            /// Blocks that share a scale.
            runs: usize,
            /// What to ask for while these are read.
            ahead: Option<(ReadAhead, Ahead)>,
        }

        /// Multiplies interleaved rows.
        #[inline]
        #[target_feature(enable = $features)]
        fn multiply<const C: usize, const W: usize, K: Kind>(
            rows: InterleavedRows<'_>,
            x: Rows<'_, Int8Block32>,
            out: &mut TileMut<'_>,
            quants: &impl Fn(&Block<'_, W>, usize, usize) -> Words,
        ) {
            let last = rows.count() - 1;
            let slab = if C == WHOLE_ROWS { x.length() } else { SLAB };
            let chunk = chunk(x.count(), C, COLUMNS_TOGETHER);
            let ahead = Ahead::new(rows.ahead, x.length(), (W * GROUP_WORD, GROUPS * rows.group_bytes));
            for start in (0..x.count()).step_by(chunk) {
                for first in (0..out.width()).step_by(UNIT) {
                    // A last short unit repeats its last group and drops the copy.
                    let group = |at: usize| rows.group((first / GROUP_ROWS + at).min(last));
                    let mut sums = [[splat_float(0.0); VECTORS]; C];
                    let sums = &mut sums[..(x.count() - start).min(chunk)];
                    for at in (0..x.length()).step_by(slab) {
                        let end = x.length().min(at + slab);
                        let pieces = Slab {
                            words: std::array::from_fn(|index| &group(index).as_chunks().0.as_chunks().0[at..end]),
                            halves: std::array::from_fn(|index| {
                                &group(index)[x.length() * W * GROUP_WORD..].as_chunks().0[at / K::RUNS..]
                            }),
                            minima: None,
                            runs: K::RUNS,
                            ahead: (C == WHOLE_ROWS).then_some((rows.ahead, ahead)),
                        };
                        accumulate::<W, K>(&pieces, |column| &x.row(start + column)[at..end], sums, quants);
                    }
                    store_sums(sums, start, first, out);
                }
            }
        }

        /// Multiplies interleaved rows of so few blocks that beginning with a row takes longer than multiplying it.
        #[inline]
        #[target_feature(enable = $features)]
        fn multiply_short(rows: InterleavedRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
            let last = rows.count() - 1;
            let scales_at = x.length() * 8 * GROUP_WORD;
            for first in (0..out.width()).step_by(UNIT) {
                // A last short unit repeats its last group and drops the copy.
                let mut groups = [rows.group((first / GROUP_ROWS).min(last)); GROUPS];
                for (at, group) in groups.iter_mut().enumerate() {
                    *group = rows.group((first / GROUP_ROWS + at).min(last));
                }
                prefetch_into(rows.ahead, groups[0], (AHEAD, GROUPS * rows.group_bytes));
                for column in 0..x.count() {
                    let mut sums = [[splat_float(0.0); VECTORS]];
                    for (at, x) in x.row(column).iter().enumerate() {
                        let mut words: Block<'_, 8> = [&groups[0].as_chunks().0.as_chunks().0[at]; GROUPS];
                        let mut scales = [&groups[0][scales_at..].as_chunks().0[at]; GROUPS];
                        for (place, group) in groups.iter().enumerate() {
                            words[place] = &group.as_chunks().0.as_chunks().0[at];
                            scales[place] = &group[scales_at..].as_chunks().0[at];
                        }
                        let mut products = [start(Q80::OFFSET * x.sum); VECTORS];
                        for word in 0..8 {
                            let values = splat_bytes(x.four(4 * word));
                            for vector in 0..VECTORS {
                                let quants = quants_q8_0(&words, word, vector);
                                products[vector] = dot_signed(products[vector], quants, values);
                            }
                        }
                        for vector in 0..VECTORS {
                            let scale = multiply_floats(halves(&scales, vector), splat_float(x.scale));
                            sums[0][vector] = add_product(sums[0][vector], scale, products[vector]);
                        }
                    }
                    store_sums(&sums, column, first, out);
                }
            }
        }

        /// Adds some blocks times one column per entry of `sums`.
        #[inline]
        #[target_feature(enable = $features)]
        fn accumulate<'x, const W: usize, K: Kind>(
            slab: &Slab<'_, W>,
            x: impl Fn(usize) -> &'x [Int8Block32],
            sums: &mut [[Floats; VECTORS]],
            quants: &impl Fn(&Block<'_, W>, usize, usize) -> Words,
        ) {
            let mut done = 0;
            // As many at a time as there are registers for, then what is left.
            while done < sums.len() {
                let left = sums.len() - done;
                done += if left >= COLUMNS_TOGETHER {
                    add_next::<COLUMNS_TOGETHER, W, K>(slab, done, &x, sums, quants)
                } else if left >= 4 {
                    add_next::<4, W, K>(slab, done, &x, sums, quants)
                } else if left >= 2 {
                    add_next::<2, W, K>(slab, done, &x, sums, quants)
                } else {
                    add_next::<1, W, K>(slab, done, &x, sums, quants)
                };
            }
        }

        /// The same for the `N` columns from `done` on; gives how many they are.
        #[inline]
        #[target_feature(enable = $features)]
        fn add_next<'x, const N: usize, const W: usize, K: Kind>(
            slab: &Slab<'_, W>,
            done: usize,
            x: &impl Fn(usize) -> &'x [Int8Block32],
            sums: &mut [[Floats; VECTORS]],
            quants: &impl Fn(&Block<'_, W>, usize, usize) -> Words,
        ) -> usize {
            add::<N, W, K>(slab, std::array::from_fn(|column| x(done + column)), &mut sums[done..], quants);
            N
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn add<const N: usize, const W: usize, K: Kind>(
            slab: &Slab<'_, W>,
            x: [&[Int8Block32]; N],
            sums: &mut [[Floats; VECTORS]],
            quants: &impl Fn(&Block<'_, W>, usize, usize) -> Words,
        ) {
            let blocks = slab.words[0].len();
            let x = x.map(|x| &x[..blocks]);
            for first in (0..VECTORS).step_by(VECTORS_TOGETHER) {
                let mut own = [[splat_float(0.0); VECTORS_TOGETHER]; N];
                for column in 0..N {
                    own[column].copy_from_slice(&sums[column][first..first + VECTORS_TOGETHER]);
                }
                for at in 0..blocks {
                    let words = slab.words.map(|words| &words[at]);
                    let halves_of = slab.halves.map(|scales| &scales[at / slab.runs]);
                    if let (0, Some((cache, ahead))) = (first, slab.ahead) {
                        for group in 0..GROUPS {
                            let (block, half) = (W * GROUP_WORD, GROUP_HALF);
                            prefetch_into(cache, words[group].as_flattened(), (ahead.bytes(at, block), block));
                            prefetch_into(cache, halves_of[group], (ahead.bytes(at, half), half));
                        }
                    }
                    let mut products = [[splat(0); VECTORS_TOGETHER]; N];
                    for column in 0..N {
                        products[column] = [start(K::OFFSET * x[column][at].sum); VECTORS_TOGETHER];
                    }
                    for word in 0..8 {
                        let mut unpacked = [splat(0); VECTORS_TOGETHER];
                        for vector in 0..VECTORS_TOGETHER {
                            unpacked[vector] = quants(&words, word, first + vector);
                        }
                        for column in 0..N {
                            let values = splat_bytes(x[column][at].four(4 * word));
                            for vector in 0..VECTORS_TOGETHER {
                                let sum = &mut products[column][vector];
                                *sum = if K::SIGNED {
                                    dot_signed(*sum, unpacked[vector], values)
                                } else {
                                    dot(*sum, unpacked[vector], values)
                                };
                            }
                        }
                    }
                    for vector in 0..VECTORS_TOGETHER {
                        let scale = halves(&halves_of, first + vector);
                        for column in 0..N {
                            let Int8Block32 { scale: x_scale, sum: x_sum, .. } = x[column][at];
                            let raw = products[column][vector];
                            let total = if K::SIGNED { raw } else { sums_of(raw, K::OFFSET * x_sum) };
                            let scale = multiply_floats(scale, splat_float(x_scale));
                            own[column][vector] = add_product(own[column][vector], scale, total);
                        }
                    }
                    let Some(minima) = slab.minima else { continue };
                    for vector in 0..VECTORS_TOGETHER {
                        let minimum = halves(&minima.map(|minima| &minima[at]), first + vector);
                        for column in 0..N {
                            let Int8Block32 { scale, sum, .. } = x[column][at];
                            let minimum = multiply_floats(minimum, splat_float(scale));
                            own[column][vector] = add_product(own[column][vector], minimum, splat(sum));
                        }
                    }
                }
                for column in 0..N {
                    sums[column][first..first + VECTORS_TOGETHER].copy_from_slice(&own[column]);
                }
            }
        }

        /// How a format's quants are multiplied.
        trait Kind {
            /// Whether quants are signed bytes.
            const SIGNED: bool;
            /// What was added to them.
            const OFFSET: i32;
            /// Runs of 32 in a stored block.
            const RUNS: usize;
        }

        struct Q80;
        struct Q40;
        struct Int4;

        impl Kind for Q80 {
            const SIGNED: bool = true;
            const OFFSET: i32 = SIGNED_OFFSET;
            const RUNS: usize = 1;
        }

        impl Kind for Q40 {
            const SIGNED: bool = false;
            const OFFSET: i32 = q4_0::OFFSET;
            const RUNS: usize = 1;
        }

        impl Kind for Int4 {
            const SIGNED: bool = false;
            const OFFSET: i32 = int4_group128::OFFSET;
            const RUNS: usize = 4;
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn quants_q8_0(words: &Block<'_, 8>, at: usize, vector: usize) -> Words {
            signed_quants(word(words, at, vector))
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn quants_q4_0(words: &Block<'_, 4>, at: usize, vector: usize) -> Words {
            and(shift_right(word(words, at % 4, vector), at / 4 * 4), splat(0x0f0f_0f0f))
        }

        #[target_feature(enable = $features)]
        pub(super) fn interleaved_q8_0(rows: InterleavedRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
            let quants = |words: &Block<'_, _>, at: usize, vector: usize| quants_q8_0(words, at, vector);
            if x.count() <= WHOLE_ROWS && x.length() <= SHORT {
                multiply_short(rows, x, out);
            } else if x.count() <= WHOLE_ROWS {
                multiply::<WHOLE_ROWS, 8, Q80>(rows, x, out, &quants);
            } else {
                many_q8_0(rows, x, out);
            }
        }

        #[target_feature(enable = $features)]
        pub(super) fn interleaved_q4_0(rows: InterleavedRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
            let quants = |words: &Block<'_, _>, at: usize, vector: usize| quants_q4_0(words, at, vector);
            if x.count() <= WHOLE_ROWS {
                multiply::<WHOLE_ROWS, 4, Q40>(rows, x, out, &quants);
            } else {
                many_q4_0(rows, x, out);
            }
        }

        #[target_feature(enable = $features)]
        pub(super) fn interleaved_int4(rows: InterleavedRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
            let quants = |words: &Block<'_, _>, at: usize, vector: usize| quants_q4_0(words, at, vector);
            if x.count() <= WHOLE_ROWS {
                multiply::<WHOLE_ROWS, 4, Int4>(rows, x, out, &quants);
            } else {
                many_int4(rows, x, out);
            }
        }
    };
}

/// Many columns times interleaved rows, and times rows that lie one after the other.
macro_rules! turned32_kernels {
    ($features:literal) => {
        /// A format whose rows are interleaved on the way.
        trait Turned: Kind {
            /// Where the f16 lies that is added to every number.
            const MINIMUM: Option<usize> = None;
        }

        #[cfg(target_arch = "x86_64")]
        struct Q41;

        #[cfg(target_arch = "x86_64")]
        impl Kind for Q41 {
            const SIGNED: bool = false;
            const OFFSET: i32 = 0;
            const RUNS: usize = 1;
        }

        impl Turned for Q80 {}
        impl Turned for Q40 {}
        impl Turned for Int4 {}

        #[cfg(target_arch = "x86_64")]
        impl Turned for Q41 {
            const MINIMUM: Option<usize> = Some(crate::blocks::q4_1::MINIMUM);
        }

        /// Multiplies rows that lie one after the other.
        #[inline]
        #[target_feature(enable = $features)]
        fn multiply_turned<const C: usize, const BYTES: usize, const W: usize, K: Turned>(
            rows: WeightRows<'_>,
            x: Rows<'_, Int8Block32>,
            out: &mut TileMut<'_>,
            quants: &impl Fn(&Block<'_, W>, usize, usize) -> Words,
        ) {
            let last = rows.count() - 1;
            let mut words = [[[[0; GROUP_WORD]; W]; SLAB]; GROUPS];
            let mut halves = [[[0; GROUP_HALF]; SLAB]; GROUPS];
            let mut minima = halves;
            let chunk = chunk(x.count(), C, COLUMNS_TOGETHER);
            for start in (0..x.count()).step_by(chunk) {
                for first in (0..rows.count()).step_by(UNIT) {
                    let mut sums = [[splat_float(0.0); VECTORS]; C];
                    let sums = &mut sums[..(x.count() - start).min(chunk)];
                    // Rows past the end repeat the last one and are dropped.
                    let mut unit =
                        [[&rows.row(first).as_chunks::<BYTES>().0[..x.length() / K::RUNS]; GROUP_ROWS]; GROUPS];
                    for (index, blocks) in unit.as_flattened_mut().iter_mut().enumerate() {
                        *blocks = &rows.row((first + index).min(last)).as_chunks::<BYTES>().0[..x.length() / K::RUNS];
                    }
                    for at in (0..x.length()).step_by(SLAB) {
                        let end = x.length().min(at + SLAB);
                        for group in 0..GROUPS {
                            for block in at / K::RUNS..end / K::RUNS {
                                // The rows that come next lie in one piece.
                                let distance =
                                    (UNIT + GROUP_ROWS * group) * rows.row_bytes + GROUP_ROWS * block * BYTES;
                                prefetch_into(ReadAhead::L2(0), rows.row(first), (distance, GROUP_ROWS * BYTES));
                                let mut blocks = [&unit[group][0][block]; GROUP_ROWS];
                                for (bytes, row) in blocks.iter_mut().zip(unit[group]) {
                                    *bytes = &row[block];
                                }
                                let (place, run) = (block - at / K::RUNS, K::RUNS * block - at);
                                let words = words[group][run..run + K::RUNS].as_flattened_mut();
                                turn(&blocks, BYTES - 4 * W * K::RUNS, words);
                                turn_halves(&blocks, 0, &mut halves[group][place]);
                                if let Some(minimum) = K::MINIMUM {
                                    turn_halves(&blocks, minimum, &mut minima[group][place]);
                                }
                            }
                        }
                        let pieces = Slab {
                            words: words.each_ref().map(|words| &words[..end - at]),
                            halves: halves.each_ref().map(|halves| &halves[..end - at]),
                            minima: K::MINIMUM.map(|_| minima.each_ref().map(|minima| &minima[..end - at])),
                            runs: K::RUNS,
                            ahead: None,
                        };
                        accumulate::<W, K>(&pieces, |column| &x.row(start + column)[at..end], sums, quants);
                    }
                    store_sums(sums, start, first, out);
                }
            }
        }

        /// The two bytes at `place` of sixteen blocks, side by side.
        #[inline]
        fn turn_halves<const BYTES: usize>(
            blocks: &[&[u8; BYTES]; GROUP_ROWS],
            place: usize,
            out: &mut [u8; GROUP_HALF],
        ) {
            for (half, block) in out.as_chunks_mut::<2>().0.iter_mut().zip(blocks) {
                *half = pair(block, place);
            }
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn many_q8_0(rows: InterleavedRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
            let quants = |words: &Block<'_, _>, at: usize, vector: usize| quants_q8_0(words, at, vector);
            multiply::<MANY, 8, Q80>(rows, x, out, &quants);
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn many_q4_0(rows: InterleavedRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
            let quants = |words: &Block<'_, _>, at: usize, vector: usize| quants_q4_0(words, at, vector);
            multiply::<MANY, 4, Q40>(rows, x, out, &quants);
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn many_int4(rows: InterleavedRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
            let quants = |words: &Block<'_, _>, at: usize, vector: usize| quants_q4_0(words, at, vector);
            multiply::<MANY, 4, Int4>(rows, x, out, &quants);
        }

        #[target_feature(enable = $features)]
        pub(super) fn turned_q8_0(rows: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
            multiply_turned::<MANY, { q8_0::BYTES }, 8, Q80>(
                rows,
                x,
                out,
                &|words: &Block<'_, _>, at: usize, vector: usize| quants_q8_0(words, at, vector),
            );
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $features)]
        pub(super) fn turned_int4(rows: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
            multiply_turned::<MANY, { int4_group128::BYTES }, 4, Int4>(
                rows,
                x,
                out,
                &|words: &Block<'_, _>, at: usize, vector: usize| quants_q4_0(words, at, vector),
            );
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $features)]
        pub(super) fn turned_q4_1(rows: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
            multiply_turned::<MANY, { crate::blocks::q4_1::BYTES }, 4, Q41>(
                rows,
                x,
                out,
                &|words: &Block<'_, _>, at: usize, vector: usize| quants_q4_0(words, at, vector),
            );
        }

        #[target_feature(enable = $features)]
        pub(super) fn turned_q4_0(rows: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
            multiply_turned::<MANY, { q4_0::BYTES }, 4, Q40>(
                rows,
                x,
                out,
                &|words: &Block<'_, _>, at: usize, vector: usize| quants_q4_0(words, at, vector),
            );
        }
    };
}

pub(crate) use {interleaved32_kernels, turned32_kernels};
