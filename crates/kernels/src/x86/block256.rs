//! The kernels of Q4_K, Q5_K and Q6_K for few columns.
//!
//! A macro, because a function belongs to one instruction set. It expects `add_pairs` of that set's `dots.rs` and what its
//! `interleaved256.rs` does for many columns in scope.

macro_rules! block256_kernels {
    ($features:literal) => {
        four_row_loops!($features, __m256i, _mm256_setzero_si256());

        #[target_feature(enable = $features)]
        pub(super) fn multiply_q4_k(weights: WeightRows<'_>, x: Rows<'_, Int8Block256>, out: &mut TileMut<'_>) {
            if x.count() >= LEAST_TURNED {
                return interleaved256::turned_q4_k(weights, x, out);
            }
            let row = |block: &_, head: &WithMinima, at| Row { quants: quants_q4_k(block), scales: head.scales(at) };
            let products = |row: &_, x: &_| products_of_runs(row, x);
            let add = |sums, head: &_, products, x: &_| add_with_minima(sums, head, products, x);
            multiply(weights, x, out, (|blocks| with_minima::<{ q4_k::BYTES }>(blocks), row, products, add));
        }

        #[target_feature(enable = $features)]
        pub(super) fn multiply_q5_k(weights: WeightRows<'_>, x: Rows<'_, Int8Block256>, out: &mut TileMut<'_>) {
            if x.count() >= LEAST_TURNED {
                return interleaved256::turned_q5_k(weights, x, out);
            }
            let row = |block: &_, head: &WithMinima, at| Row { quants: quants_q5_k(block), scales: head.scales(at) };
            let products = |row: &_, x: &_| products_of_runs(row, x);
            let add = |sums, head: &_, products, x: &_| add_with_minima(sums, head, products, x);
            multiply(weights, x, out, (|blocks| with_minima::<{ q5_k::BYTES }>(blocks), row, products, add));
        }

        #[target_feature(enable = $features)]
        pub(super) fn multiply_q6_k(weights: WeightRows<'_>, x: Rows<'_, Int8Block256>, out: &mut TileMut<'_>) {
            if x.count() >= LEAST_TURNED {
                return interleaved256::turned_q6_k(weights, x, out);
            }
            let row = |block: &_, head: &Centred, at| Row { quants: quants_q6_k(block), scales: head.scales(at) };
            let products = |row: &_, x: &_| products_of_halves(row, x);
            let add = |sums, head: &_, products, x: &_| add_centred(sums, head, products, x);
            multiply(weights, x, out, (|blocks| centred(blocks), row, products, add));
        }

        /// Σ scale × quant × x as eight integers, where a scale belongs to 32 quants.
        #[inline]
        #[target_feature(enable = $features)]
        fn products_of_runs(row: &Row, x: &Int8Block256) -> __m256i {
            let scales = scales_of_runs(row);
            let scales = unknown(&scales);
            products(_mm256_setzero_si256(), row, x, |run| _mm256_set1_epi32(scales[run]))
        }

        /// The same where it belongs to 16, and with centred quants.
        #[inline]
        #[target_feature(enable = $features)]
        fn products_of_halves(row: &Row, x: &Int8Block256) -> __m256i {
            let (places, scales) = (unknown(&SCALES_OF_HALVES), scales_of_halves(row));
            let start = centre(row, x);
            products(start, row, x, |run| _mm256_shuffle_epi8(scales[run / 4], load(&places[run % 4])))
        }

        /// `sum` and the products of all runs.
        #[inline]
        #[target_feature(enable = $features)]
        fn products(sum: __m256i, row: &Row, x: &Int8Block256, scales: impl Fn(usize) -> __m256i) -> __m256i {
            let mut sum = sum;
            for (run, x) in unknown(x).values.as_chunks::<32>().0.iter().enumerate() {
                sum = add_pairs(sum, _mm256_maddubs_epi16(row.quants[run], load(x)), scales(run));
            }
            sum
        }
    };
}

pub(crate) use block256_kernels;
