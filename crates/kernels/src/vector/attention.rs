//! The two products of attention over one page of cached keys or values, several query heads at a time.
//!
//! A macro, because a function belongs to one instruction set. It expects `Lanes16`, sixteen floats, `prefetch_from`,
//! which has memory brought nearer, `HEADS`, the query heads that share one pass over the keys, and `SIDES`, the sixteens
//! that share one broadcast of a query's number or of a weight: as many sums as there are registers for. Fewer heads
//! take more sixteens.

/// Numbers of a query, or weights, that are at hand at a time: as many as a page has tokens.
pub(crate) const PART: usize = 64;

macro_rules! attention_kernels {
    ($features:literal) => {
        /// Scores of all queries against the wanted keys, sixteen tokens at a time; `load` widens sixteen numbers.
        #[inline]
        #[target_feature(enable = $features)]
        fn scores<T: Copy>(
            queries: &[f32],
            keys: &Keys<'_, T>,
            (scores, stride): (&mut [f32], usize),
            load: impl Fn(&[T; 16]) -> Lanes16 + Copy,
        ) {
            let head = keys.numbers.len() / keys.page_tokens;
            let count = queries.len() / head;
            let mut first = 0;
            while first < count {
                let (queries, out) = (&queries[first * head..], (&mut scores[first * stride..], stride));
                first += match count - first {
                    _ if !keys.page_tokens.is_multiple_of(64) => score::<1, 1, T>(queries, keys, out, load),
                    left if left >= HEADS => score::<HEADS, SIDES, T>(queries, keys, out, load),
                    left if left >= 4 => score::<4, 4, T>(queries, keys, out, load),
                    left if left >= 2 => score::<2, 4, T>(queries, keys, out, load),
                    _ => score::<1, 4, T>(queries, keys, out, load),
                };
            }
        }

        /// The same for the first `H` queries, `S` sixteens of tokens at a time, of which a page has a multiple; says how
        /// many queries that were.
        #[inline]
        #[target_feature(enable = $features)]
        fn score<const H: usize, const S: usize, T: Copy>(
            queries: &[f32],
            keys: &Keys<'_, T>,
            (scores, stride): (&mut [f32], usize),
            load: impl Fn(&[T; 16]) -> Lanes16 + Copy,
        ) -> usize {
            let Keys { numbers, page_tokens, tokens, ahead } = keys;
            let head = numbers.len() / page_tokens;
            let runs = tokens.start / (16 * S)..tokens.end.div_ceil(16 * S);
            // What comes next is asked for from its start to its end, as much at a time as is read here: processors
            // that see that order go on with it.
            let step = S * size_of::<[T; 16]>();
            let mut asked = *ahead;
            for run in runs {
                let mut sums = [[Lanes16::zero(); S]; H];
                for (part, columns) in numbers.chunks(PART * page_tokens).enumerate() {
                    let mut room = None;
                    let factors = at_hand::<H>(|row| &queries[row * head..][..head][PART * part..], &mut room);
                    for (at, column) in columns.chunks_exact(*page_tokens).enumerate() {
                        let column = column.as_chunks::<16>().0[run * S..].first_chunk::<S>().expect("a whole run");
                        prefetch_from(numbers, asked, step);
                        asked = asked.wrapping_add(step);
                        let mut keys = [Lanes16::zero(); S];
                        for (keys, numbers) in keys.iter_mut().zip(column) {
                            *keys = load(numbers);
                        }
                        for (sums, query) in sums.iter_mut().zip(&factors) {
                            let number = Lanes16::splat(query[at]);
                            for (sum, keys) in sums.iter_mut().zip(&keys) {
                                *sum = sum.add_product(number, *keys);
                            }
                        }
                    }
                }
                for (row, sums) in sums.iter().enumerate() {
                    for (side, sum) in sums.iter().enumerate() {
                        store_wanted(sum, 16 * (run * S + side), tokens, &mut scores[row * stride..]);
                    }
                }
            }
            H
        }

        /// Stores the scores of sixteen tokens, as far as they are wanted.
        #[inline]
        #[target_feature(enable = $features)]
        pub(super) fn store_wanted(sums: &Lanes16, token: usize, wanted: &Range<usize>, scores: &mut [f32]) {
            if wanted.start <= token && token + 16 <= wanted.end {
                sums.store(scores[token - wanted.start..].first_chunk_mut().expect("room for every wanted token"));
                return;
            }
            let mut all = [0.0; 16];
            sums.store(&mut all);
            for (token, score) in (token..).zip(all).filter(|(token, _)| wanted.contains(token)) {
                scores[token - wanted.start] = score;
            }
        }

        /// The first numbers of every row; where there are fewer, they are in `room`, and zeros after them.
        #[inline]
        #[target_feature(enable = $features)]
        fn at_hand<'a, const H: usize>(
            row: impl Fn(usize) -> &'a [f32],
            room: &'a mut Option<[[f32; PART]; H]>,
        ) -> [&'a [f32; PART]; H] {
            let Some(first) = row(0).first_chunk() else {
                let padded = room.insert([[0.0; PART]; H]);
                for (at, padded) in padded.iter_mut().enumerate() {
                    padded[..row(at).len()].copy_from_slice(row(at));
                }
                return padded.each_ref();
            };
            let mut parts = [first; H];
            for (at, part) in parts.iter_mut().enumerate() {
                *part = row(at).first_chunk().expect("rows are of one length");
            }
            parts
        }

        #[target_feature(enable = $features)]
        pub(super) fn scores_f32(queries: &[f32], keys: Keys<'_, f32>, out: &mut [f32], stride: usize) {
            scores(queries, &keys, (out, stride), |key| Lanes16::load(key));
        }

        #[target_feature(enable = $features)]
        pub(super) fn scores_f16(queries: &[f32], keys: Keys<'_, u16>, out: &mut [f32], stride: usize) {
            scores(queries, &keys, (out, stride), |key| Lanes16::load_halves(key));
        }

        #[target_feature(enable = $features)]
        pub(super) fn scores_bf16(queries: &[f32], keys: Keys<'_, u16>, out: &mut [f32], stride: usize) {
            scores(queries, &keys, (out, stride), |key| Lanes16::load_brain(key));
        }

        #[target_feature(enable = $features)]
        pub(super) fn scores_f8(queries: &[f32], keys: Keys<'_, u8>, out: &mut [f32], stride: usize) {
            scores(queries, &keys, (out, stride), |key| Lanes16::load_bytes(key));
        }

        /// Adds weighted values to the outputs, sixteen numbers of several heads in registers over all keys.
        #[inline]
        #[target_feature(enable = $features)]
        fn mix<T: Copy>(
            (weights, stride): (&[f32], usize),
            values: &TokenRows<'_, T>,
            out: &mut [f32],
            (load, widen): (impl Fn(&[T; 16]) -> Lanes16 + Copy, impl Fn(T) -> f32),
        ) {
            let TokenRows { numbers, head, row: length, .. } = *values;
            let count = out.len() / head;
            let mut first = 0;
            while first < count {
                let (weights, out) = ((&weights[first * stride..], stride), &mut out[first * head..]);
                first += match count - first {
                    left if left >= HEADS => mix_heads::<HEADS, SIDES, T>(weights, values, out, load),
                    left if left >= 4 => mix_heads::<4, 4, T>(weights, values, out, load),
                    left if left >= 2 => mix_heads::<2, 4, T>(weights, values, out, load),
                    _ => mix_heads::<1, 4, T>(weights, values, out, load),
                };
            }
            for (row, out) in out.chunks_exact_mut(head).enumerate() {
                for (column, out) in out.iter_mut().enumerate().skip(head / 16 * 16) {
                    for (value, &weight) in numbers.chunks_exact(length).zip(&weights[row * stride..]) {
                        *out = Instruction::fused(weight, widen(value[column]), *out);
                    }
                }
            }
        }

        /// The same for the first `H` heads, as far as they are sixteens; says how many heads that were.
        #[inline]
        #[target_feature(enable = $features)]
        fn mix_heads<const H: usize, const S: usize, T: Copy>(
            weights: (&[f32], usize),
            values: &TokenRows<'_, T>,
            out: &mut [f32],
            load: impl Fn(&[T; 16]) -> Lanes16 + Copy,
        ) -> usize {
            let mut column = 0;
            while column + 16 * S <= values.head {
                mix_columns::<H, S, T>(weights, values, column, out, load);
                column += 16 * S;
            }
            while column + 16 <= values.head {
                mix_columns::<H, 1, T>(weights, values, column, out, load);
                column += 16;
            }
            H
        }

        /// The same for `S` sixteens of each value from `column` on.
        #[inline]
        #[target_feature(enable = $features)]
        fn mix_columns<const H: usize, const S: usize, T: Copy>(
            (weights, stride): (&[f32], usize),
            TokenRows { numbers, head, row: length, ahead }: &TokenRows<'_, T>,
            column: usize,
            out: &mut [f32],
            load: impl Fn(&[T; 16]) -> Lanes16 + Copy,
        ) {
            let keys = numbers.len() / length;
            let step = S * size_of::<[T; 16]>();
            let mut asked = ahead.wrapping_add(column * keys * size_of::<T>());
            let mut sums = [[Lanes16::zero(); S]; H];
            for (row, sums) in sums.iter_mut().enumerate() {
                for (side, sum) in sums.iter_mut().enumerate() {
                    *sum = Lanes16::load(out[row * head + column + 16 * side..].first_chunk().expect("a sixteen"));
                }
            }
            for (part, values) in numbers.chunks(PART * length).enumerate() {
                let mut room = None;
                let factors = at_hand::<H>(|row| &weights[row * stride..][..keys][PART * part..], &mut room);
                for (at, value) in values.chunks_exact(*length).enumerate() {
                    let value = value[column..].as_chunks::<16>().0.first_chunk::<S>().expect("a whole run");
                    prefetch_from(numbers, asked, step);
                    asked = asked.wrapping_add(step);
                    let mut numbers = [Lanes16::zero(); S];
                    for (numbers, value) in numbers.iter_mut().zip(value) {
                        *numbers = load(value);
                    }
                    for (sums, weights) in sums.iter_mut().zip(&factors) {
                        let weight = Lanes16::splat(weights[at]);
                        for (sum, numbers) in sums.iter_mut().zip(&numbers) {
                            *sum = sum.add_product(weight, *numbers);
                        }
                    }
                }
            }
            for (row, sums) in sums.iter().enumerate() {
                for (side, sum) in sums.iter().enumerate() {
                    sum.store(out[row * head + column + 16 * side..].first_chunk_mut().expect("a sixteen"));
                }
            }
        }

        #[target_feature(enable = $features)]
        pub(super) fn mix_f32(weights: &[f32], stride: usize, values: TokenRows<'_, f32>, out: &mut [f32]) {
            mix((weights, stride), &values, out, (|value| Lanes16::load(value), |value| value));
        }

        #[target_feature(enable = $features)]
        pub(super) fn mix_f16(weights: &[f32], stride: usize, values: TokenRows<'_, u16>, out: &mut [f32]) {
            mix((weights, stride), &values, out, (|value| Lanes16::load_halves(value), half_to_f32));
        }

        #[target_feature(enable = $features)]
        pub(super) fn mix_bf16(weights: &[f32], stride: usize, values: TokenRows<'_, u16>, out: &mut [f32]) {
            mix((weights, stride), &values, out, (|value| Lanes16::load_brain(value), brain_to_f32));
        }

        #[target_feature(enable = $features)]
        pub(super) fn mix_f8(weights: &[f32], stride: usize, values: TokenRows<'_, u8>, out: &mut [f32]) {
            mix((weights, stride), &values, out, (|value| Lanes16::load_bytes(value), byte_to_f32));
        }

        /// The sums stay in a register, and are added as the specification does: each waits for the one before, and
        /// exponentials are computed meanwhile.
        #[target_feature(enable = $features)]
        pub(super) fn exp_weights(scores: &mut [f32], greatest: f32, lanes: &mut [f32; 16]) {
            let (sixteens, rest) = scores.as_chunks_mut::<16>();
            let mut sums = Lanes16::load(lanes);
            for sixteen in sixteens {
                for score in &mut *sixteen {
                    *score = exp::<Instruction>(*score - greatest);
                }
                sums = sums.add_product(Lanes16::load(sixteen), Lanes16::splat(1.0));
            }
            sums.store(lanes);
            scalar::elementwise::exp_weights::<Instruction>(rest, greatest, lanes);
        }

        #[target_feature(enable = $features)]
        pub(super) fn to_f16(row: &[f32], out: &mut [u16]) {
            scalar::attention::to_f16(row, out);
        }
    };
}

pub(crate) use attention_kernels;
