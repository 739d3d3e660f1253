//! Formats of nibbles times few columns: four runs of 32 of four rows at a time. A run is so small that scaling each by
//! itself would take longer than reading it.
//!
//! A macro, because a function belongs to one instruction set. It expects `nibble_products` and `lane_sums4` of that
//! set's `dots.rs` in scope, its `codes32`, and what its `interleaved32.rs` does for many columns.

macro_rules! four_blocks_kernels {
    ($features:literal) => {
        /// Fours of rows that share activations in the form of [`FourBlocks`], and how many of these are kept at hand.
        const SHARING: usize = 8;
        const AT_HAND: usize = 16;

        /// The kernel of any format with runs of 32 that the table does not name.
        pub(super) fn kernel(dtype: Dtype) -> Multiply<Int8Block32> {
            match dtype {
                Dtype::Q4_1 => multiply_q4_1,
                Dtype::Int4Group128 => multiply_int4,
                _ => codes32::kernel(dtype),
            }
        }

        #[target_feature(enable = $features)]
        pub(super) fn multiply_q4_0(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
            if x.count() >= LEAST_TURNED {
                return interleaved32::turned_q4_0(weights, x, out);
            }
            multiply::<{ 4 * q4_0::BYTES }, Q40>(weights, x, out);
        }

        /// Q4_1 differs from Q4_0 by its minima alone, so many columns are multiplied with interleaved rows too.
        #[target_feature(enable = $features)]
        fn multiply_q4_1(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
            if x.count() >= LEAST_TURNED {
                return interleaved32::turned_q4_1(weights, x, out);
            }
            multiply::<{ 4 * q4_1::BYTES }, Q41>(weights, x, out);
        }

        #[target_feature(enable = $features)]
        fn multiply_int4(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
            if x.count() >= LEAST_TURNED {
                return codes32::multiply::<{ int4_group128::BYTES }, Int4Group128>(weights, x, out);
            }
            multiply::<{ int4_group128::BYTES }, Int4>(weights, x, out);
        }

        /// Multiplies rows, four at a time; a lane of the float sums belongs to a row.
        #[inline]
        #[target_feature(enable = $features)]
        fn multiply<const BYTES: usize, F: Nibbles<BYTES>>(
            weights: WeightRows<'_>,
            x: Rows<'_, Int8Block32>,
            out: &mut TileMut<'_>,
        ) {
            for first in (0..weights.fours()).step_by(SHARING) {
                let fours = first..weights.fours().min(first + SHARING);
                for column in 0..x.count() {
                    let (x_fours, x_rest) = x.row(column).as_chunks::<4>();
                    let mut sums = [_mm_setzero_ps(); SHARING];
                    for (part, x) in x_fours.chunks(AT_HAND).enumerate() {
                        let mut at_hand = [FourBlocks::new::<BYTES, F>(&[Int8Block32::ZERO; 4]); AT_HAND];
                        at_hand.iter_mut().zip(x).for_each(|(at_hand, x)| *at_hand = FourBlocks::new::<BYTES, F>(x));
                        let at_hand = &at_hand[..x.len()];
                        for (four, sums) in fours.clone().zip(&mut sums) {
                            let [a, b, c, d] =
                                weights.four(four).map(|row| &row.as_chunks::<BYTES>().0[AT_HAND * part..]);
                            for ((((x, a), b), c), d) in at_hand.iter().zip(a).zip(b).zip(c).zip(d) {
                                read_ahead(weights.ahead, [a, b, c, d]);
                                *sums = x.add_products::<BYTES, F>(*sums, [a, b, c, d], 0);
                            }
                        }
                    }
                    if !x_rest.is_empty() {
                        // The last four runs, of which the first were added already.
                        let last = FourBlocks::new::<BYTES, F>(&last_of(x.row(column), Int8Block32::ZERO));
                        for (four, sums) in fours.clone().zip(&mut sums) {
                            let [a, b, c, d] = weights.four(four);
                            let rows: [[u8; BYTES]; 4] = [last_of(a, 0), last_of(b, 0), last_of(c, 0), last_of(d, 0)];
                            *sums = last.add_products::<BYTES, F>(*sums, rows.each_ref(), 4 - x_rest.len());
                        }
                    }
                    for (four, sums) in fours.clone().zip(sums) {
                        out.put4(column, four, store4(sums));
                    }
                }
            }
        }

        /// Four blocks of activations: the first two registers of everything belong to the first two of them, half and
        /// half.
        #[derive(Clone, Copy)]
        struct FourBlocks {
            /// The numbers that meet the lower and the upper nibbles.
            low: [__m256i; 2],
            high: [__m256i; 2],
            /// The sum of a block's numbers, and by how much the offset of the quants makes products too large.
            sums: [__m256; 2],
            surplus: [__m256i; 2],
            scales: [__m256; 2],
        }

        impl FourBlocks {
            #[inline]
            #[target_feature(enable = $features)]
            fn new<const BYTES: usize, F: Nibbles<BYTES>>([a, b, c, d]: &[Int8Block32; 4]) -> FourBlocks {
                let half = |block: &Int8Block32, at: usize| load16(&block.values.as_chunks::<16>().0[at]);
                let sum = |block: &Int8Block32| _mm_set1_epi32(block.sum);
                let scale = |block: &Int8Block32| _mm_set1_ps(block.scale);
                let sums = [_mm256_set_m128i(sum(b), sum(a)), _mm256_set_m128i(sum(d), sum(c))];
                let offset = _mm256_set1_epi32(F::OFFSET);
                FourBlocks {
                    low: [_mm256_set_m128i(half(b, 0), half(a, 0)), _mm256_set_m128i(half(d, 0), half(c, 0))],
                    high: [_mm256_set_m128i(half(b, 1), half(a, 1)), _mm256_set_m128i(half(d, 1), half(c, 1))],
                    sums: [_mm256_cvtepi32_ps(sums[0]), _mm256_cvtepi32_ps(sums[1])],
                    surplus: [_mm256_mullo_epi32(sums[0], offset), _mm256_mullo_epi32(sums[1], offset)],
                    scales: [_mm256_set_m128(scale(b), scale(a)), _mm256_set_m128(scale(d), scale(c))],
                }
            }

            /// Adds the products with four runs of four rows, run by run, but for the first `skipped`.
            #[inline]
            #[target_feature(enable = $features)]
            fn add_products<const BYTES: usize, F: Nibbles<BYTES>>(
                &self,
                sums: __m128,
                rows: [&[u8; BYTES]; 4],
                skipped: usize,
            ) -> __m128 {
                let nibbles = _mm256_set1_epi8(15);
                let products = |bytes, at: usize| {
                    let (low, high) =
                        (_mm256_and_si256(bytes, nibbles), _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), nibbles));
                    nibble_products((low, self.low[at]), (high, self.high[at]))
                };
                let quants = |row: usize| quants::<BYTES, F>(rows[row]);
                let quants = [quants(0), quants(1), quants(2), quants(3)];
                let factors = factors::<BYTES, F>(rows);
                let totals = |at: usize| {
                    let row = |row: usize| products(quants[row][at], at);
                    let totals = lane_sums4(row(0), row(1), row(2), row(3));
                    _mm256_cvtepi32_ps(match F::OFFSET {
                        0 => totals,
                        _ => _mm256_sub_epi32(totals, self.surplus[at]),
                    })
                };
                let totals = [totals(0), totals(1)];
                let scaled = |factors: [__m256; 2], at: usize| _mm256_mul_ps(factors[at], self.scales[at]);
                let scales = [scaled(factors.scales, 0), scaled(factors.scales, 1)];
                let minima = [scaled(factors.minima, 0), scaled(factors.minima, 1)];
                let lower = |registers: [__m256; 2], at: usize| _mm256_castps256_ps128(registers[at]);
                let upper = |registers: [__m256; 2], at: usize| _mm256_extractf128_ps::<1>(registers[at]);
                let add = |sums, (scales, totals), (minima, x_sums)| {
                    let sums = _mm_fmadd_ps(scales, totals, sums);
                    if F::HAS_MINIMA { _mm_fmadd_ps(minima, x_sums, sums) } else { sums }
                };
                let mut sums = sums;
                if skipped < 1 {
                    sums = add(sums, (lower(scales, 0), lower(totals, 0)), (lower(minima, 0), lower(self.sums, 0)));
                }
                if skipped < 2 {
                    sums = add(sums, (upper(scales, 0), upper(totals, 0)), (upper(minima, 0), upper(self.sums, 0)));
                }
                if skipped < 3 {
                    sums = add(sums, (lower(scales, 1), lower(totals, 1)), (lower(minima, 1), lower(self.sums, 1)));
                }
                add(sums, (upper(scales, 1), upper(totals, 1)), (upper(minima, 1), upper(self.sums, 1)))
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

pub(crate) use four_blocks_kernels;
