//! Formats of nibbles times few columns, half a register to a run.
//!
//! A macro, because a function belongs to one instruction set. It expects `nibble_products` and `lane_sums4` of that
//! set's `dots.rs` in scope, its `codes32`, and what its `interleaved32.rs` does for many columns.

macro_rules! four_blocks_kernels {
    ($features:literal) => {
        four_blocks_loop!($features);

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
                return interleaved32::turned_int4(weights, x, out);
            }
            multiply::<{ int4_group128::BYTES }, Int4>(weights, x, out);
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
        }

        /// Adds the products of four runs of four rows with blocks of `N` columns, run by run but for the first
        /// `skipped`.
        #[inline]
        #[target_feature(enable = $features)]
        fn add_products<const N: usize, const BYTES: usize, F: Nibbles<BYTES>>(
            sums: &mut [__m128; N],
            rows: [&[u8; BYTES]; 4],
            x: &[FourBlocks; N],
            skipped: usize,
        ) {
            let nibbles = _mm256_set1_epi8(15);
            let quants = |row: usize| quants::<BYTES, F>(rows[row]);
            let quants = [quants(0), quants(1), quants(2), quants(3)];
            let factors = factors::<BYTES, F>(rows);
            let mut totals = [[_mm256_setzero_ps(); 2]; N];
            for at in 0..2 {
                let mut products = [[_mm256_setzero_si256(); 4]; N];
                for row in 0..4 {
                    let bytes = quants[row][at];
                    let (low, high) =
                        (_mm256_and_si256(bytes, nibbles), _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), nibbles));
                    for column in 0..N {
                        products[column][row] = nibble_products((low, x[column].low[at]), (high, x[column].high[at]));
                    }
                }
                for column in 0..N {
                    let [a, b, c, d] = products[column];
                    let sums = lane_sums4(a, b, c, d);
                    totals[column][at] = _mm256_cvtepi32_ps(match F::OFFSET {
                        0 => sums,
                        _ => _mm256_sub_epi32(sums, x[column].surplus[at]),
                    });
                }
            }
            let lower = |registers: [__m256; 2], at: usize| _mm256_castps256_ps128(registers[at]);
            let upper = |registers: [__m256; 2], at: usize| _mm256_extractf128_ps::<1>(registers[at]);
            let add = |sums, (scales, totals), (minima, x_sums)| {
                let sums = _mm_fmadd_ps(scales, totals, sums);
                if F::HAS_MINIMA { _mm_fmadd_ps(minima, x_sums, sums) } else { sums }
            };
            for column in 0..N {
                let (x, totals) = (&x[column], totals[column]);
                let scaled = |factors: [__m256; 2], at: usize| _mm256_mul_ps(factors[at], x.scales[at]);
                let scales = [scaled(factors.scales, 0), scaled(factors.scales, 1)];
                let minima = [scaled(factors.minima, 0), scaled(factors.minima, 1)];
                let mut sum = sums[column];
                if skipped < 1 {
                    sum = add(sum, (lower(scales, 0), lower(totals, 0)), (lower(minima, 0), lower(x.sums, 0)));
                }
                if skipped < 2 {
                    sum = add(sum, (upper(scales, 0), upper(totals, 0)), (upper(minima, 0), upper(x.sums, 0)));
                }
                if skipped < 3 {
                    sum = add(sum, (lower(scales, 1), lower(totals, 1)), (lower(minima, 1), lower(x.sums, 1)));
                }
                sums[column] = add(sum, (upper(scales, 1), upper(totals, 1)), (upper(minima, 1), upper(x.sums, 1)));
            }
        }
    };
}

pub(crate) use four_blocks_kernels;
