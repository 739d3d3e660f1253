//! The two products of attention over one page of cached keys or values, several query heads at a time.
//!
//! A macro, because a function belongs to one instruction set. It expects `Lanes16`, sixteen floats, `HEADS`, the query
//! heads that share one pass over the keys, and `SIDES`, the sixteens that share one broadcast of a query's number or of
//! a weight: as many sums as there are registers for.

macro_rules! attention_kernels {
    ($features:literal) => {
        /// Scores of all queries against the wanted keys, sixteen tokens at a time; `load` widens sixteen numbers.
        #[inline]
        #[target_feature(enable = $features)]
        fn scores<T: Copy>(
            queries: &[f32],
            keys: &Keys<'_, T>,
            (scores, stride): (&mut [f32], usize),
            load: impl Fn(&[T; 16]) -> Lanes16,
        ) {
            let Keys { numbers, page_tokens, tokens } = keys;
            let head = numbers.len() / page_tokens;
            let count = queries.len() / head;
            let chunks = tokens.start / 16..tokens.end.div_ceil(16);
            for chunk in chunks.clone().step_by(SIDES) {
                // Where there are fewer left, the last is computed more than once.
                let side = |at: usize| (chunk + at).min(chunks.end - 1);
                for first in (0..count).step_by(HEADS) {
                    let query = |at: usize| &queries[(first + at).min(count - 1) * head..][..head];
                    let mut sums = [[Lanes16::zero(); SIDES]; HEADS];
                    let mut group = [query(0); HEADS];
                    for (at, row) in group.iter_mut().enumerate() {
                        *row = query(at);
                    }
                    for (number, column) in numbers.chunks_exact(*page_tokens).enumerate() {
                        let mut keys = [Lanes16::zero(); SIDES];
                        for (at, keys) in keys.iter_mut().enumerate() {
                            *keys = load(&column.as_chunks::<16>().0[side(at)]);
                        }
                        for (sums, query) in sums.iter_mut().zip(&group) {
                            let number = Lanes16::splat(query[number]);
                            for (sum, keys) in sums.iter_mut().zip(&keys) {
                                *sum = sum.add_product(number, *keys);
                            }
                        }
                    }
                    for (row, sums) in sums.iter().enumerate().take(count - first) {
                        for (at, sum) in sums.iter().enumerate() {
                            let wanted = tokens.start.max(16 * side(at))..tokens.end.min(16 * (side(at) + 1));
                            let mut all = [0.0; 16];
                            sum.store(&mut all);
                            let start = (first + row) * stride + wanted.start - tokens.start;
                            let lanes = wanted.start - 16 * side(at)..wanted.end - 16 * side(at);
                            scores[start..start + wanted.len()].copy_from_slice(&all[lanes]);
                        }
                    }
                }
            }
        }

        #[target_feature(enable = $features)]
        pub(super) fn scores_f32(queries: &[f32], keys: Keys<'_, f32>, out: &mut [f32], stride: usize) {
            scores(queries, &keys, (out, stride), |key| Lanes16::load(key));
        }

        #[target_feature(enable = $features)]
        pub(super) fn scores_f16(queries: &[f32], keys: Keys<'_, u16>, out: &mut [f32], stride: usize) {
            scores(queries, &keys, (out, stride), |key| Lanes16::load_halves(key));
        }

        /// Adds weighted values to the outputs, sixteen numbers of several heads in registers over all keys.
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
            for first in (0..count).step_by(HEADS) {
                let rows = (count - first).min(HEADS);
                let row_weights = |at: usize| &weights[(first + at.min(rows - 1)) * stride..][..keys];
                let mut group = [row_weights(0); HEADS];
                for (at, row) in group.iter_mut().enumerate() {
                    *row = row_weights(at);
                }
                for start in (0..head / 16 * 16).step_by(16 * SIDES) {
                    // Where there are fewer numbers left, the last sixteen are computed more than once.
                    let side = |at: usize| (start + 16 * at).min(head / 16 * 16 - 16);
                    let mut sums = [[Lanes16::zero(); SIDES]; HEADS];
                    for (row, sums) in sums[..rows].iter_mut().enumerate() {
                        for (at, sum) in sums.iter_mut().enumerate() {
                            *sum = Lanes16::load(chunk(out, (first + row) * head + side(at)));
                        }
                    }
                    for (key, value) in values.chunks_exact(head).enumerate() {
                        let mut numbers = [Lanes16::zero(); SIDES];
                        for (at, numbers) in numbers.iter_mut().enumerate() {
                            *numbers = load(value[side(at)..].first_chunk().expect("sixteen numbers inside a head"));
                        }
                        for (sums, weights) in sums.iter_mut().zip(&group) {
                            let weight = Lanes16::splat(weights[key]);
                            for (sum, numbers) in sums.iter_mut().zip(&numbers) {
                                *sum = sum.add_product(weight, *numbers);
                            }
                        }
                    }
                    for (row, sums) in sums[..rows].iter().enumerate() {
                        for (at, sum) in sums.iter().enumerate() {
                            let place = (first + row) * head + side(at);
                            sum.store(out[place..].first_chunk_mut().expect("sixteen numbers inside a head"));
                        }
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
