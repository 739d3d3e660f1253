//! The loops around formats with runs of 32: four weight rows times one column, or eight turned rows times many.
//!
//! Macros, because a function belongs to one instruction set. They expect the functions of that set's `dots.rs` and
//! those of `avx2/codes32.rs` in scope.

/// Few columns.
macro_rules! few_codes32_kernels {
    ($features:literal) => {
        /// Multiplies fewer than [`LEAST_TURNED`] columns.
        #[inline]
        #[target_feature(enable = $features)]
        pub(super) fn multiply_few<const BYTES: usize, F: Format32<BYTES>>(
            weights: WeightRows<'_>,
            x: Rows<'_, Int8Block32>,
            out: &mut TileMut<'_>,
        ) {
            match x.count() {
                0 => {}
                1 => four_rows::<1, BYTES, F>(weights, x, out),
                2 => four_rows::<2, BYTES, F>(weights, x, out),
                3 => four_rows::<3, BYTES, F>(weights, x, out),
                LEAST_TURNED.. => unreachable!("many columns are multiplied with turned rows"),
            }
        }

        /// Four rows at a time with `N` columns, one lane of the float sums per row.
        #[inline]
        #[target_feature(enable = $features)]
        fn four_rows<const N: usize, const BYTES: usize, F: Format32<BYTES>>(
            weights: WeightRows<'_>,
            x: Rows<'_, Int8Block32>,
            out: &mut TileMut<'_>,
        ) {
            let blocks = x.length() / F::RUNS;
            let mut columns = [&x.row(0)[..F::RUNS * blocks]; N];
            columns.iter_mut().enumerate().for_each(|(column, runs)| *runs = &x.row(column)[..F::RUNS * blocks]);
            for four in 0..weights.fours() {
                let [a, b, c, d] = weights.four(four).map(|row| &row.as_chunks::<BYTES>().0[..blocks]);
                let mut sums = [_mm_setzero_ps(); N];
                for at in 0..blocks {
                    let rows = [&a[at], &b[at], &c[at], &d[at]];
                    read_ahead(weights.ahead, rows);
                    for run in 0..F::RUNS {
                        let mut x = [&columns[0][F::RUNS * at + run]; N];
                        for column in 1..N {
                            x[column] = &columns[column][F::RUNS * at + run];
                        }
                        add_run::<N, BYTES, F>(&mut sums, rows, run, x);
                    }
                }
                for column in 0..N {
                    out.put4(column, four, store4(sums[column]));
                }
            }
        }

        /// Adds the products of a run of four rows with blocks of `N` columns.
        #[inline]
        #[target_feature(enable = $features)]
        fn add_run<const N: usize, const BYTES: usize, F: Format32<BYTES>>(
            sums: &mut [__m128; N],
            rows: [&[u8; BYTES]; 4],
            run: usize,
            x: [&Int8Block32; N],
        ) {
            let (scales, zeros) = (scales4::<BYTES, F>(rows), zeros4::<BYTES, F>(rows));
            let codes = |row: usize| codes::<BYTES, F>(rows[row], run);
            let codes = [codes(0), codes(1), codes(2), codes(3)];
            for column in 0..N {
                let (x, values) = (x[column], load(&x[column].values));
                let part = |row: usize| {
                    let (magnitudes, values) = unsigned::<BYTES, F>(codes[row], values);
                    add_fours(_mm256_setzero_si256(), magnitudes, values)
                };
                let products = integer_sums4(part(0), part(1), part(2), part(3));
                let offsets = _mm_mullo_epi32(zeros, _mm_set1_epi32(x.sum));
                let totals = _mm_cvtepi32_ps(_mm_sub_epi32(products, offsets));
                let x_scale = _mm_set1_ps(x.scale);
                sums[column] = _mm_fmadd_ps(_mm_mul_ps(scales, x_scale), totals, sums[column]);
                if let Some(at) = F::MINIMUM {
                    let half = |row: usize| pair(rows[row], at);
                    let minima = _mm_mul_ps(four_halves(half(0), half(1), half(2), half(3)), x_scale);
                    sums[column] = _mm_fmadd_ps(minima, _mm_set1_ps(x.sum as f32), sums[column]);
                }
            }
        }
    };
}

/// Any number of columns.
macro_rules! codes32_kernels {
    ($features:literal) => {
        few_codes32_kernels!($features);

        /// Columns that share one turned run.
        const COLUMNS: usize = 128;
        /// Columns that are multiplied together, as many as there are registers for.
        const TOGETHER: usize = 4;

        /// The kernel of a format.
        pub(super) fn kernel(dtype: Dtype) -> Multiply<Int8Block32> {
            with_format32!(dtype, multiply)
        }

        #[target_feature(enable = $features)]
        pub(crate) fn multiply<const BYTES: usize, F: Format32<BYTES>>(
            weights: WeightRows<'_>,
            x: Rows<'_, Int8Block32>,
            out: &mut TileMut<'_>,
        ) {
            if x.count() < LEAST_TURNED {
                return multiply_few::<BYTES, F>(weights, x, out);
            }
            let count = weights.count();
            // A last short group repeats its last row and drops the copies.
            let row = |at: usize| weights.row(at.min(count - 1)).as_chunks::<BYTES>().0;
            for first in (0..count).step_by(ROWS) {
                let mut rows = [row(first); ROWS];
                rows.iter_mut().enumerate().for_each(|(at, rows)| *rows = row(first + at));
                for start in (0..x.count()).step_by(COLUMNS) {
                    let columns = start..x.count().min(start + COLUMNS);
                    eight_rows::<BYTES, F>(&rows, x, columns, (out, first..count.min(first + ROWS)));
                }
            }
        }

        /// Eight rows times many columns; a lane belongs to a row.
        #[inline]
        #[target_feature(enable = $features)]
        fn eight_rows<const BYTES: usize, F: Format32<BYTES>>(
            rows: &[&[[u8; BYTES]]; ROWS],
            x: Rows<'_, Int8Block32>,
            columns: Range<usize>,
            (out, kept): (&mut TileMut<'_>, Range<usize>),
        ) {
            let mut sums = [_mm256_setzero_ps(); COLUMNS];
            for at in 0..x.length() {
                let mut blocks = [&rows[0][at / F::RUNS]; ROWS];
                blocks.iter_mut().zip(rows).for_each(|(block, row)| *block = &row[at / F::RUNS]);
                let tile = turn::<BYTES, F>(&blocks, at % F::RUNS);
                let block = |column: usize| &x.row(columns.start + column)[at];
                let mut done = 0;
                while done + TOGETHER <= columns.len() {
                    let together = std::array::from_fn(|column| block(done + column));
                    add_tile::<TOGETHER, BYTES, F>(&tile, together, &mut sums[done..]);
                    done += TOGETHER;
                }
                while done < columns.len() {
                    add_tile::<1, BYTES, F>(&tile, [block(done)], &mut sums[done..]);
                    done += 1;
                }
            }
            for (column, sums) in columns.zip(sums) {
                let mut all = [0.0; ROWS];
                store_floats(sums, &mut all);
                out.row(column)[kept.clone()].copy_from_slice(&all[..kept.len()]);
            }
        }

        /// Adds a turned run times some columns to their sums.
        #[inline]
        #[target_feature(enable = $features)]
        fn add_tile<const N: usize, const BYTES: usize, F: Format32<BYTES>>(
            tile: &Tile,
            x: [&Int8Block32; N],
            sums: &mut [__m256],
        ) {
            let mut totals = [_mm256_setzero_si256(); N];
            for (half, quants) in tile.quants.as_chunks::<4>().0.iter().enumerate() {
                for column in 0..N {
                    let four = |four: usize| _mm256_set1_epi32(x[column].four_bytes(16 * half + 4 * four));
                    let values = [four(0), four(1), four(2), four(3)];
                    if F::SIGNED {
                        for (&codes, values) in quants.iter().zip(values) {
                            let (magnitudes, values) = unsigned::<BYTES, F>(codes, values);
                            totals[column] = add_fours(totals[column], magnitudes, values);
                        }
                    } else {
                        totals[column] = add_small_fours(totals[column], quants, values);
                    }
                }
            }
            for column in 0..N {
                let (sum, scale) = (x[column].sum, _mm256_set1_ps(x[column].scale));
                let offsets = _mm256_mullo_epi32(tile.zeros, _mm256_set1_epi32(sum));
                let total = _mm256_cvtepi32_ps(_mm256_sub_epi32(totals[column], offsets));
                sums[column] = _mm256_fmadd_ps(_mm256_mul_ps(tile.scales, scale), total, sums[column]);
                if F::MINIMUM.is_some() {
                    let minima = _mm256_mul_ps(tile.minima, scale);
                    sums[column] = _mm256_fmadd_ps(minima, _mm256_set1_ps(sum as f32), sums[column]);
                }
            }
        }
    };
}

pub(crate) use {codes32_kernels, few_codes32_kernels};
