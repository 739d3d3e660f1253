//! The loops around the 32-block kernels: four weight rows at a time, one lane of the float sums per row.
//!
//! A macro, because a function belongs to one instruction set.

macro_rules! block32_loops {
    ($features:literal) => {
        /// Multiplies weight rows with `partial` sums per block: eight integers whose total is weights · x, plus
        /// `offset` × Σ x.
        #[inline]
        #[target_feature(enable = $features)]
        fn multiply<const BYTES: usize>(
            weights: WeightRows<'_>,
            x: Rows<'_, Int8Block32>,
            out: &mut TileMut<'_>,
            offset: i32,
            partial: impl Fn(&[u8; BYTES], __m256i) -> __m256i,
        ) {
            let count = weights.count();
            for first in (0..count).step_by(4) {
                // A last short group repeats its last row and drops the copies.
                let row = |at: usize| weights.row((first + at).min(count - 1)).as_chunks::<BYTES>().0;
                let (a, b, c, d) = (row(0), row(1), row(2), row(3));
                // The next four rows follow these in the file.
                let distance = 4 * weights.row_bytes;
                for column in 0..x.count() {
                    let mut sums = _mm_setzero_ps();
                    for ((((x, a), b), c), d) in x.row(column).iter().zip(a).zip(b).zip(c).zip(d) {
                        let values = load(&x.values);
                        [a, b, c, d].into_iter().for_each(|block| prefetch(block, distance));
                        let raw = integer_sums4(
                            partial(a, values),
                            partial(b, values),
                            partial(c, values),
                            partial(d, values),
                        );
                        let integers = _mm_sub_epi32(raw, _mm_set1_epi32(offset * x.sum));
                        let scales = four_halves(pair(a, 0), pair(b, 0), pair(c, 0), pair(d, 0));
                        sums = _mm_fmadd_ps(_mm_mul_ps(scales, _mm_set1_ps(x.scale)), _mm_cvtepi32_ps(integers), sums);
                    }
                    let kept = (count - first).min(4);
                    out.row(column)[first..first + kept].copy_from_slice(&store4(sums)[..kept]);
                }
            }
        }
    };
}

pub(crate) use block32_loops;
