//! Scores of queries against keys that lie token by token: dot products, added up as the specification's `dot` does.
//!
//! A macro, because a function belongs to one instruction set. It expects `Lanes16`, sixteen floats, `reduce4`, `padded`,
//! `prefetch_from`, which has memory brought nearer, `HEADS`, the query heads that share one pass over the keys, and
//! `SIDES`, the tokens that share one load of a query's numbers: as many sums as there are registers for, in whole
//! fours. Fewer heads take more tokens.

macro_rules! row_score_kernels {
    ($features:literal) => {
        /// Scores of all queries against the wanted tokens; `load` widens sixteen numbers.
        #[inline]
        #[target_feature(enable = $features)]
        fn score_rows<T: Copy + Default>(
            queries: &[f32],
            keys: &TokenRows<'_, T>,
            (scores, stride): (&mut [f32], usize),
            load: impl Fn(&[T; 16]) -> Lanes16 + Copy,
        ) {
            let count = queries.len() / keys.head;
            let mut first = 0;
            while first < count {
                let (queries, out) = (&queries[first * keys.head..], (&mut scores[first * stride..], stride));
                first += match count - first {
                    left if left >= HEADS => score_heads::<HEADS, SIDES, T>(queries, keys, out, load),
                    left if left >= 4 => score_heads::<4, 4, T>(queries, keys, out, load),
                    _ => score_heads::<1, 4, T>(queries, keys, out, load),
                };
            }
        }

        /// The same for the first `H` queries, `S` tokens at a time; says how many queries that were.
        #[inline]
        #[target_feature(enable = $features)]
        fn score_heads<const H: usize, const S: usize, T: Copy + Default>(
            queries: &[f32],
            TokenRows { numbers, head, row, ahead }: &TokenRows<'_, T>,
            (scores, stride): (&mut [f32], usize),
            load: impl Fn(&[T; 16]) -> Lanes16 + Copy,
        ) -> usize {
            let (head, tokens) = (*head, numbers.len() / row);
            let mut heads = [&queries[..head]; H];
            for (at, query) in heads.iter_mut().enumerate() {
                *query = &queries[at * head..][..head];
            }
            // What comes next is asked for from its start to its end, as much at a time as is read here.
            let step = S * size_of::<[T; 16]>();
            let mut asked = *ahead;
            for first in (0..tokens).step_by(S) {
                // After the last token its row comes again, and what it scores there is not stored.
                let mut rows = [&numbers[..head]; S];
                for (token, key) in (first..).zip(&mut rows) {
                    *key = &numbers[token.min(tokens - 1) * row..][..head];
                }
                let mut sums = [[Lanes16::zero(); S]; H];
                for at in 0..head / 16 {
                    prefetch_from(numbers, asked, step);
                    asked = asked.wrapping_add(step);
                    let mut keys = [Lanes16::zero(); S];
                    for (lanes, key) in keys.iter_mut().zip(&rows) {
                        *lanes = load(&key.as_chunks::<16>().0[at]);
                    }
                    add_sixteen(&mut sums, &keys, |query| Lanes16::load(&heads[query].as_chunks::<16>().0[at]));
                }
                if !head.is_multiple_of(16) {
                    let mut keys = [Lanes16::zero(); S];
                    for (lanes, key) in keys.iter_mut().zip(&rows) {
                        let (rest, mut full) = (key.as_chunks::<16>().1, [T::default(); 16]);
                        full[..rest.len()].copy_from_slice(rest);
                        *lanes = load(&full);
                    }
                    add_sixteen(&mut sums, &keys, |query| Lanes16::load(&padded(heads[query].as_chunks::<16>().1)));
                }
                for (four, sums) in sums.as_flattened().as_chunks::<4>().0.iter().enumerate() {
                    for (at, score) in (4 * four..).zip(reduce4(*sums)) {
                        if first + at % S < tokens {
                            scores[at / S * stride + first + at % S] = score;
                        }
                    }
                }
            }
            H
        }

        /// Adds the products of sixteen numbers of some tokens with those of every query.
        #[inline]
        #[target_feature(enable = $features)]
        fn add_sixteen<const H: usize, const S: usize>(
            sums: &mut [[Lanes16; S]; H],
            keys: &[Lanes16; S],
            query: impl Fn(usize) -> Lanes16,
        ) {
            for (at, sums) in sums.iter_mut().enumerate() {
                let query = query(at);
                for (sum, key) in sums.iter_mut().zip(keys) {
                    *sum = sum.add_product(query, *key);
                }
            }
        }

        #[target_feature(enable = $features)]
        pub(super) fn score_rows_f32(queries: &[f32], keys: TokenRows<'_, f32>, out: &mut [f32], stride: usize) {
            score_rows(queries, &keys, (out, stride), |key| Lanes16::load(key));
        }

        #[target_feature(enable = $features)]
        pub(super) fn score_rows_f16(queries: &[f32], keys: TokenRows<'_, u16>, out: &mut [f32], stride: usize) {
            score_rows(queries, &keys, (out, stride), |key| Lanes16::load_halves(key));
        }

        #[target_feature(enable = $features)]
        pub(super) fn score_rows_bf16(queries: &[f32], keys: TokenRows<'_, u16>, out: &mut [f32], stride: usize) {
            score_rows(queries, &keys, (out, stride), |key| Lanes16::load_brain(key));
        }

        #[target_feature(enable = $features)]
        pub(super) fn score_rows_f8(queries: &[f32], keys: TokenRows<'_, u8>, out: &mut [f32], stride: usize) {
            score_rows(queries, &keys, (out, stride), |key| Lanes16::load_bytes(key));
        }
    };
}

pub(crate) use row_score_kernels;
