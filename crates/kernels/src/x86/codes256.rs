//! The loops around formats with blocks of 256: four weight rows times one column, or eight turned rows times many.
//!
//! A macro, because a function belongs to one instruction set. It expects the functions of that set's `dots.rs` and
//! those of `avx2/codes256.rs` in scope.

macro_rules! codes256_kernels {
    ($features:literal) => {
        /// Columns that share one turned block.
        const COLUMNS: usize = 128;
        /// Columns that are multiplied together, as many as there are registers for.
        const TOGETHER: usize = 4;

        /// The kernel of a format.
        pub(super) fn kernel(dtype: Dtype) -> Multiply<Int8Block256> {
            with_format256!(dtype, multiply)
        }

        #[target_feature(enable = $features)]
        fn multiply<const BYTES: usize, F: Registers<BYTES>>(
            weights: WeightRows<'_>,
            x: Rows<'_, Int8Block256>,
            out: &mut TileMut<'_>,
        ) {
            match x.count() {
                1 => return four_rows::<1, BYTES, F>(weights, x, out),
                2 => return four_rows::<2, BYTES, F>(weights, x, out),
                3 => return four_rows::<3, BYTES, F>(weights, x, out),
                // From here on turning the weights pays.
                4.. => {}
                0 => return,
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

        /// Four rows at a time with `N` columns, one lane of the float sums per row.
        #[inline]
        #[target_feature(enable = $features)]
        fn four_rows<const N: usize, const BYTES: usize, F: Registers<BYTES>>(
            weights: WeightRows<'_>,
            x: Rows<'_, Int8Block256>,
            out: &mut TileMut<'_>,
        ) {
            let length = x.length();
            let mut columns = [&x.row(0)[..length]; N];
            columns.iter_mut().enumerate().for_each(|(column, blocks)| *blocks = &x.row(column)[..length]);
            for four in 0..weights.fours() {
                let [a, b, c, d] = weights.four(four).map(|row| &row.as_chunks::<BYTES>().0[..length]);
                let mut sums = [_mm_setzero_ps(); N];
                for at in 0..length {
                    let rows = [&a[at], &b[at], &c[at], &d[at]];
                    read_ahead(weights.ahead, rows);
                    let mut x = [&columns[0][at]; N];
                    for column in 1..N {
                        x[column] = &columns[column][at];
                    }
                    add_block::<N, BYTES, F>(&mut sums, rows, x);
                }
                for column in 0..N {
                    out.put4(column, four, store4(sums[column]));
                }
            }
        }

        /// Adds the products of a block of four rows with blocks of `N` columns.
        #[inline]
        #[target_feature(enable = $features)]
        fn add_block<const N: usize, const BYTES: usize, F: Registers<BYTES>>(
            sums: &mut [__m128; N],
            rows: [&[u8; BYTES]; 4],
            x: [&Int8Block256; N],
        ) {
            let zeros = _mm256_setzero_si256();
            let (mut totals, mut offsets) = ([[zeros; 4]; N], [[zeros; 4]; N]);
            for row in 0..4 {
                let unpacked = unpack::<BYTES, F>(rows[row]);
                for column in 0..N {
                    (totals[column][row], offsets[column][row]) = products::<BYTES, F>(&unpacked, x[column]);
                }
            }
            let scales = scales4::<BYTES, F>(rows);
            for column in 0..N {
                let x_scale = _mm_set1_ps(x[column].scale);
                let [a, b, c, d] = totals[column];
                let total = _mm_cvtepi32_ps(integer_sums4(a, b, c, d));
                sums[column] = _mm_fmadd_ps(_mm_mul_ps(scales, x_scale), total, sums[column]);
                if let Some(at) = F::MINIMUM_SCALE {
                    let [a, b, c, d] = offsets[column];
                    let offset = _mm_cvtepi32_ps(integer_sums4(a, b, c, d));
                    let half = |row: usize| pair(rows[row], at);
                    let minima = _mm_mul_ps(four_halves(half(0), half(1), half(2), half(3)), x_scale);
                    sums[column] = _mm_fnmadd_ps(minima, offset, sums[column]);
                }
            }
        }

        /// Σ scale × code × x, and Σ minimum × x, as eight integers each.
        #[inline]
        #[target_feature(enable = $features)]
        fn products<const BYTES: usize, F: Registers<BYTES>>(
            &Unpacked { quants, scales, minima }: &Unpacked,
            x: &Int8Block256,
        ) -> (__m256i, __m256i) {
            let mut total = _mm256_setzero_si256();
            let by_run = even_then_odd(scales);
            for (run, values) in x.values.as_chunks::<32>().0.iter().enumerate() {
                let (quants, values) = unsigned(F::CODES, quants[run], load(values));
                let pick = _mm256_set1_epi16(((2 * run + 1) << 8 | (2 * run)) as i16);
                total = add_pairs(total, _mm256_maddubs_epi16(quants, values), _mm256_shuffle_epi8(by_run, pick));
            }
            let x_sums = load(&x.sums);
            let offsets = _mm256_madd_epi16(offset_factors(F::CODES, scales), x_sums);
            (_mm256_sub_epi32(total, offsets), _mm256_madd_epi16(minima, x_sums))
        }

        /// Eight rows times many columns; a lane belongs to a row.
        #[inline]
        #[target_feature(enable = $features)]
        fn eight_rows<const BYTES: usize, F: Registers<BYTES>>(
            rows: &[&[[u8; BYTES]]; ROWS],
            x: Rows<'_, Int8Block256>,
            columns: Range<usize>,
            (out, kept): (&mut TileMut<'_>, Range<usize>),
        ) {
            let mut sums = [_mm256_setzero_ps(); COLUMNS];
            for at in 0..x.length() {
                let mut blocks = [&rows[0][at]; ROWS];
                blocks.iter_mut().zip(rows).for_each(|(block, row)| *block = &row[at]);
                let tile = turn::<BYTES, F>(&blocks);
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

        /// Adds a turned block times some columns to their sums.
        #[inline]
        #[target_feature(enable = $features)]
        fn add_tile<const N: usize, const BYTES: usize, F: Registers<BYTES>>(
            tile: &Tile,
            x: [&Int8Block256; N],
            sums: &mut [__m256],
        ) {
            let largest = match F::CODES {
                CodeRange::Shifted { largest, .. } => largest,
                CodeRange::Wide => 127,
            };
            let mut totals = [_mm256_setzero_si256(); N];
            for (group, quants) in tile.quants.as_chunks::<4>().0.iter().enumerate() {
                for column in 0..N {
                    let (mut codes, mut values) = (*quants, *quants);
                    for four in 0..4 {
                        let bytes = _mm256_set1_epi32(x[column].four_bytes(16 * group + 4 * four));
                        (codes[four], values[four]) = unsigned(F::CODES, quants[four], bytes);
                    }
                    totals[column] = add_scaled(totals[column], largest, (&codes, values), tile.factors[group]);
                }
            }
            for column in 0..N {
                let pair_sums = |factors: &[__m256i; 8]| {
                    let mut sum = _mm256_setzero_si256();
                    for (pair, &factors) in factors.iter().enumerate() {
                        sum = add_pairs(sum, factors, _mm256_set1_epi32(x[column].sum_pair(pair)));
                    }
                    sum
                };
                let x_scale = _mm256_set1_ps(x[column].scale);
                let total = _mm256_cvtepi32_ps(_mm256_sub_epi32(totals[column], pair_sums(&tile.offsets)));
                sums[column] = _mm256_fmadd_ps(_mm256_mul_ps(tile.scales, x_scale), total, sums[column]);
                if F::MINIMUM_SCALE.is_some() {
                    let minima = _mm256_cvtepi32_ps(pair_sums(&tile.minima));
                    sums[column] = _mm256_fnmadd_ps(_mm256_mul_ps(tile.minimum_scales, x_scale), minima, sums[column]);
                }
            }
        }
    };
}

pub(crate) use codes256_kernels;
