//! The two products of attention over one page of cached keys or values, four query heads at a time.
//!
//! A macro, because a function belongs to one instruction set. It expects `Lanes16`, sixteen floats, and `reduce4`.

macro_rules! attention_kernels {
    ($features:literal) => {
        /// Scores of all queries against all keys; `load` widens sixteen numbers, `widen` one.
        #[inline]
        #[target_feature(enable = $features)]
        fn scores<T: Copy>(
            queries: &[f32],
            keys: &[T],
            head: usize,
            (scores, stride): (&mut [f32], usize),
            (load, widen): (impl Fn(&[T; 16]) -> Lanes16, impl Fn(T) -> f32),
        ) {
            let count = queries.len() / head;
            for first in (0..count).step_by(4) {
                let query = |at: usize| {
                    let row = (first + at).min(count - 1);
                    queries[row * head..(row + 1) * head].as_chunks::<16>()
                };
                let (a, b, c, d) = (query(0), query(1), query(2), query(3));
                let kept = (count - first).min(4);
                for (at, key) in keys.chunks_exact(head).enumerate() {
                    let (chunks, rest) = key.as_chunks::<16>();
                    let mut sums = [Lanes16::zero(); 4];
                    for ((((key, a), b), c), d) in chunks.iter().zip(a.0).zip(b.0).zip(c.0).zip(d.0) {
                        let key = load(key);
                        for (sum, query) in sums.iter_mut().zip([a, b, c, d]) {
                            *sum = sum.add_product(Lanes16::load(query), key);
                        }
                    }
                    if !rest.is_empty() {
                        let mut full = [0.0; 16];
                        full.iter_mut().zip(rest).for_each(|(full, &rest)| *full = widen(rest));
                        let key = Lanes16::load(&full);
                        for (sum, query) in sums.iter_mut().zip([a.1, b.1, c.1, d.1]) {
                            *sum = sum.add_product(Lanes16::load(&scalar::float::padded(query)), key);
                        }
                    }
                    for (row, score) in reduce4(sums).into_iter().enumerate().take(kept) {
                        scores[(first + row) * stride + at] = score;
                    }
                }
            }
        }

        #[target_feature(enable = $features)]
        pub(super) fn scores_f32(queries: &[f32], keys: &[f32], head: usize, out: &mut [f32], stride: usize) {
            scores(queries, keys, head, (out, stride), (|key| Lanes16::load(key), |key| key));
        }

        #[target_feature(enable = $features)]
        pub(super) fn scores_f16(queries: &[f32], keys: &[u16], head: usize, out: &mut [f32], stride: usize) {
            scores(queries, keys, head, (out, stride), (|key| Lanes16::load_halves(key), half_to_f32));
        }

        /// Adds weighted values to the outputs, sixteen numbers of up to four heads in registers over all keys.
        #[inline]
        #[target_feature(enable = $features)]
        fn mix<T: Copy>(
            (weights, stride): (&[f32], usize),
            values: &[T],
            head: usize,
            out: &mut [f32],
            (load, widen): (impl Fn(&[T; 16]) -> Lanes16, impl Fn(T) -> f32),
        ) {
            let (count, keys) = (out.len() / head, values.len() / head);
            for first in (0..count).step_by(4) {
                let rows = (count - first).min(4);
                let row_weights = |at: usize| {
                    let start = (first + at.min(rows - 1)) * stride;
                    &weights[start..start + keys]
                };
                let (a, b, c, d) = (row_weights(0), row_weights(1), row_weights(2), row_weights(3));
                for start in (0..head / 16 * 16).step_by(16) {
                    let mut sums = [Lanes16::zero(); 4];
                    for (row, sum) in sums[..rows].iter_mut().enumerate() {
                        *sum = Lanes16::load(chunk(out, (first + row) * head + start));
                    }
                    for ((((value, a), b), c), d) in values.chunks_exact(head).zip(a).zip(b).zip(c).zip(d) {
                        let value = load(value[start..].first_chunk().expect("sixteen numbers inside a head"));
                        for (sum, &weight) in sums.iter_mut().zip([a, b, c, d]) {
                            *sum = sum.add_product(Lanes16::splat(weight), value);
                        }
                    }
                    for (row, sum) in sums[..rows].iter().enumerate() {
                        let at = (first + row) * head + start;
                        sum.store(out[at..].first_chunk_mut().expect("sixteen numbers inside a head"));
                    }
                }
                for row in 0..rows {
                    for column in head / 16 * 16..head {
                        let out = &mut out[(first + row) * head + column];
                        for (value, &weight) in values.chunks_exact(head).zip(row_weights(row)) {
                            *out = weight.mul_add(widen(value[column]), *out);
                        }
                    }
                }
            }
        }

        #[inline]
        fn chunk(values: &[f32], at: usize) -> &[f32; 16] {
            values[at..].first_chunk().expect("sixteen numbers inside a head")
        }

        #[target_feature(enable = $features)]
        pub(super) fn mix_f32(weights: &[f32], stride: usize, values: &[f32], head: usize, out: &mut [f32]) {
            mix((weights, stride), values, head, out, (|value| Lanes16::load(value), |value| value));
        }

        #[target_feature(enable = $features)]
        pub(super) fn mix_f16(weights: &[f32], stride: usize, values: &[u16], head: usize, out: &mut [f32]) {
            mix((weights, stride), values, head, out, (|value| Lanes16::load_halves(value), half_to_f32));
        }

        #[target_feature(enable = $features)]
        pub(super) fn to_f16(row: &[f32], out: &mut [u16]) {
            scalar::attention::to_f16(row, out);
        }
    };
}

pub(crate) use attention_kernels;
