//! The loops around the 256-block kernels: four weight rows at a time, one lane of the float sums per row.
//!
//! A macro, because a function belongs to one instruction set. It expects in scope: `Unpacked` (one block of one row),
//! `load_x::<F>(&Int8Block256)` and `products(&Unpacked, &x) -> __m256i` with eight integers to be summed.

macro_rules! four_row_loops {
    ($features:literal) => {
        /// Columns that share one unpacking of the weights.
        const COLUMNS: usize = 64;

        /// Adds one block of four rows times one column to the four sums.
        #[inline]
        #[target_feature(enable = $features)]
        fn add_block<const BYTES: usize, F: Format<BYTES>>(
            sums: __m128,
            raw: [&[u8; BYTES]; 4],
            [a, b, c, d]: [&Unpacked; 4],
            x: &Int8Block256,
        ) -> __m128 {
            let halves = |at| four_halves(pair(raw[0], at), pair(raw[1], at), pair(raw[2], at), pair(raw[3], at));
            let (values, x_sums) = (load_x::<BYTES, F>(x), load(&x.sums));
            let product = |block| products(block, &values);
            let offset = |block: &Unpacked| _mm256_madd_epi16(block.offsets, x_sums);
            let scales = _mm_mul_ps(halves(F::SCALE), _mm_set1_ps(x.scale));
            if F::OWN_MINIMUM {
                let totals = integer_sums4(product(a), product(b), product(c), product(d));
                let offsets = integer_sums4(offset(a), offset(b), offset(c), offset(d));
                let minima = _mm_mul_ps(halves(q4_k::MINIMUM_SCALE), _mm_set1_ps(x.scale));
                let sums = _mm_fmadd_ps(scales, _mm_cvtepi32_ps(totals), sums);
                _mm_fnmadd_ps(minima, _mm_cvtepi32_ps(offsets), sums)
            } else {
                let total = |block| _mm256_sub_epi32(product(block), offset(block));
                let totals = integer_sums4(total(a), total(b), total(c), total(d));
                _mm_fmadd_ps(scales, _mm_cvtepi32_ps(totals), sums)
            }
        }

        /// Multiplies weight rows, four at a time.
        #[inline]
        #[target_feature(enable = $features)]
        fn multiply<const BYTES: usize, F: Format<BYTES>>(
            weights: WeightRows<'_>,
            x: Rows<'_, Int8Block256>,
            out: &mut TileMut<'_>,
            unpack: impl Fn(&[u8; BYTES]) -> Unpacked,
        ) {
            let count = weights.count();
            for first in (0..count).step_by(4) {
                // A last short group repeats its last row and drops the copies.
                let row = |at: usize| weights.row((first + at).min(count - 1)).as_chunks::<BYTES>().0;
                let rows = [row(0), row(1), row(2), row(3)];
                let kept = (count - first).min(4);
                if x.count() == 1 {
                    let sums = one_column::<BYTES, F>(rows, x.row(0), &unpack);
                    out.row(0)[first..first + kept].copy_from_slice(&store4(sums)[..kept]);
                    continue;
                }
                for tile in (0..x.count()).step_by(COLUMNS) {
                    let columns = (x.count() - tile).min(COLUMNS);
                    let mut sums = [_mm_setzero_ps(); COLUMNS];
                    for at in 0..x.length() {
                        let raw = [&rows[0][at], &rows[1][at], &rows[2][at], &rows[3][at]];
                        let blocks = [unpack(raw[0]), unpack(raw[1]), unpack(raw[2]), unpack(raw[3])];
                        let blocks = [&blocks[0], &blocks[1], &blocks[2], &blocks[3]];
                        for (column, sums) in sums[..columns].iter_mut().enumerate() {
                            *sums = add_block::<BYTES, F>(*sums, raw, blocks, &x.row(tile + column)[at]);
                        }
                    }
                    for (column, sums) in sums[..columns].iter().enumerate() {
                        out.row(tile + column)[first..first + kept].copy_from_slice(&store4(*sums)[..kept]);
                    }
                }
            }
        }

        /// Four rows times one column: nothing is kept, so the unpacked quants never leave the registers.
        #[inline]
        #[target_feature(enable = $features)]
        fn one_column<const BYTES: usize, F: Format<BYTES>>(
            [a, b, c, d]: [&[[u8; BYTES]]; 4],
            x: &[Int8Block256],
            unpack: &impl Fn(&[u8; BYTES]) -> Unpacked,
        ) -> __m128 {
            let mut sums = _mm_setzero_ps();
            // The next four rows follow these in the file.
            let distance = 4 * BYTES * x.len();
            for ((((x, a), b), c), d) in x.iter().zip(a).zip(b).zip(c).zip(d) {
                [a, b, c, d].into_iter().for_each(|block| prefetch(block, distance));
                let blocks = [&unpack(a), &unpack(b), &unpack(c), &unpack(d)];
                sums = add_block::<BYTES, F>(sums, [a, b, c, d], blocks, x);
            }
            sums
        }
    };
}

pub(crate) use four_row_loops;
