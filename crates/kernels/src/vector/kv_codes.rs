//! The two products of attention over one page of small integers, several query heads at a time.
//!
//! A macro, because a function belongs to one instruction set. It expects `Lanes16`, sixteen floats, and `reduce4`, `Sums16`,
//! sixteen sums of products, `Codes64`, four numbers of each of sixteen lanes, `prefetch_from`, which has memory brought nearer,
//! and `HEADS`, the query heads that share one pass.

use crate::kv_codes::VECTOR;

/// Vectors that hold four numbers of two sixteens of lanes, and how far those are shifted there.
#[derive(Clone, Copy)]
pub(crate) struct TwoSixteens<'a> {
    /// Of the first sixteen; of numbers of less than eight bits, of both.
    pub(crate) first: &'a [u8; VECTOR],
    /// Of the second sixteen.
    pub(crate) second: &'a [u8; VECTOR],
    /// Third bits, where numbers have three.
    pub(crate) third: &'a [u8; VECTOR],
    /// By how many bits numbers of two or three bits are shifted.
    pub(crate) shift: u32,
    /// By how many bits third bits are shifted.
    pub(crate) third_shift: u32,
}

macro_rules! kv_code_kernels {
    ($features:literal) => {
        #[target_feature(enable = $features)]
        pub(super) fn scores(page: &KeyCodes<'_>, out: &mut [f32], stride: usize) {
            match page.keys.bits {
                CodeBits::Two => scores_of::<2>(page, (out, stride)),
                CodeBits::Three => scores_of::<3>(page, (out, stride)),
                CodeBits::Four => scores_of::<4>(page, (out, stride)),
                CodeBits::Eight => scores_of::<8>(page, (out, stride)),
            }
        }

        #[target_feature(enable = $features)]
        pub(super) fn seal(page: &mut CodesMut<'_>, side: Side, head: usize, scratch: &mut SealScratch) {
            page.seal_tokens(side, head, scratch);
        }

        #[target_feature(enable = $features)]
        pub(super) fn mix(weights: (&[f32], usize), page: &ValueCodes<'_>, out: &mut [f32]) {
            match page.values.bits {
                CodeBits::Two => mix_of::<2>(weights, page, out),
                CodeBits::Three => mix_of::<3>(weights, page, out),
                CodeBits::Four => mix_of::<4>(weights, page, out),
                CodeBits::Eight => mix_of::<8>(weights, page, out),
            }
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn scores_of<const BITS: usize>(page: &KeyCodes<'_>, (out, stride): (&mut [f32], usize)) {
            let count = page.query_codes.rounded.len();
            let mut first = 0;
            while first < count {
                let out = (&mut out[first * stride..], stride);
                first += match count - first {
                    left if left >= HEADS => score::<BITS, HEADS>(page, first, out),
                    left if left >= 4 => score::<BITS, 4>(page, first, out),
                    left if left >= 2 => score::<BITS, 2>(page, first, out),
                    _ => score::<BITS, 1>(page, first, out),
                };
            }
        }

        /// Scores of `H` queries from `first` on; says how many that were.
        #[inline]
        #[target_feature(enable = $features)]
        fn score<const BITS: usize, const H: usize>(
            page: &KeyCodes<'_>,
            first: usize,
            (out, stride): (&mut [f32], usize),
        ) -> usize {
            let (tokens, rounded) = (page.keys.scales.len(), &page.query_codes.rounded[first..first + H]);
            let (mut factors, mut queries) = ([page.query(first); H], [page.exact_query(first); H]);
            for row in 0..H {
                (factors[row], queries[row]) = (page.query(first + row), page.exact_query(first + row));
            }
            for halves in [page.keys.scales, page.keys.means, page.keys.apart] {
                prefetch_from(halves, page.ahead, size_of_val(halves));
            }
            let common = dots(&queries, page.keys.means);
            let mut side = page.tokens.start / 32;
            while side * 32 < page.tokens.end {
                let sums = products::<BITS, false, H>(&page.keys, (tokens, page.ahead), side, &factors);
                for (sixteen, sums) in sums.iter().enumerate() {
                    let token = 32 * side + 16 * sixteen;
                    let Some(scales) = page.keys.scales.get(token..).and_then(|scales| scales.first_chunk()) else {
                        break;
                    };
                    let scales = Lanes16::load_halves(scales);
                    for (row, (sums, rounded)) in sums.iter().zip(rounded).enumerate() {
                        let scale = scales.times(Lanes16::splat(rounded.scale));
                        let sums = sums.floats_of_keys(rounded.total);
                        let scores = Lanes16::splat(common[row]).add_product(sums, scale);
                        store_wanted(&scores, token, &page.tokens, &mut out[row * stride..]);
                    }
                }
                side += 1;
            }
            if let Some((at, numbers)) = page.wanted_apart() {
                let scores = dots(&queries, numbers);
                for (row, score) in scores.iter().enumerate() {
                    out[row * stride + at] = *score;
                }
            }
            H
        }

        /// Dot products of several queries with the same numbers, added up as the specification's `dot` does.
        #[inline]
        #[target_feature(enable = $features)]
        fn dots<const H: usize>(queries: &[&[f32]; H], halves: &[u16]) -> [f32; H] {
            let (halves, rest) = halves.as_chunks::<16>();
            let mut rows = [&queries[0].as_chunks::<16>().0[..halves.len()]; H];
            for (row, query) in rows.iter_mut().zip(queries) {
                *row = &query.as_chunks::<16>().0[..halves.len()];
            }
            let mut sums = [Lanes16::zero(); H];
            for (at, halves) in halves.iter().enumerate() {
                let numbers = Lanes16::load_halves(halves);
                for (sum, row) in sums.iter_mut().zip(&rows) {
                    *sum = sum.add_product(Lanes16::load(&row[at]), numbers);
                }
            }
            if !rest.is_empty() {
                sums = add_rest(sums, queries, rest);
            }
            let mut all = [0.0; H];
            for (all, sums) in all.chunks_mut(4).zip(sums.chunks(4)) {
                let mut four = [Lanes16::zero(); 4];
                four[..sums.len()].copy_from_slice(sums);
                all.copy_from_slice(&reduce4(four)[..sums.len()]);
            }
            all
        }

        /// Adds the products of less than sixteen numbers, the last ones of each query.
        #[cold]
        #[inline(never)]
        #[target_feature(enable = $features)]
        fn add_rest<const H: usize>(mut sums: [Lanes16; H], queries: &[&[f32]; H], rest: &[u16]) -> [Lanes16; H] {
            let mut halves = [0; 16];
            halves[..rest.len()].copy_from_slice(rest);
            let numbers = Lanes16::load_halves(&halves);
            for (sum, query) in sums.iter_mut().zip(queries) {
                *sum = sum.add_product(Lanes16::load(&padded(query.as_chunks::<16>().1)), numbers);
            }
            sums
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn mix_of<const BITS: usize>((weights, stride): (&[f32], usize), page: &ValueCodes<'_>, out: &mut [f32]) {
            let (count, page) = (out.len() / page.head, (page, &widened(page.values.scales)));
            let mut first = 0;
            while first < count {
                let (weights, out) = ((&weights[first * stride..], stride), &mut out[first * page.0.head..]);
                first += match count - first {
                    left if left >= HEADS => mix_heads::<BITS, HEADS>(weights, page, out),
                    left if left >= 4 => mix_heads::<BITS, 4>(weights, page, out),
                    left if left >= 2 => mix_heads::<BITS, 2>(weights, page, out),
                    _ => mix_heads::<BITS, 1>(weights, page, out),
                };
            }
        }

        /// Adds the weighted values to the first `H` heads; says how many that were.
        #[inline]
        #[target_feature(enable = $features)]
        fn mix_heads<const BITS: usize, const H: usize>(
            (weights, stride): (&[f32], usize),
            (page, scales): (&ValueCodes<'_>, &[f32; MOST_TOKENS]),
            out: &mut [f32],
        ) -> usize {
            let (mut codes, mut factors) = ([[0; MOST_TOKENS]; H], [0.0; H]);
            for (row, (codes, factor)) in codes.iter_mut().zip(&mut factors).enumerate() {
                *factor = weigh((&weights[row * stride..], &page.tokens), scales, codes);
            }
            let mut quads = [codes[0].as_chunks().0; H];
            for (quads, codes) in quads.iter_mut().zip(&codes) {
                *quads = codes.as_chunks().0;
            }
            prefetch_from(page.values.scales, page.ahead, size_of_val(page.values.scales));
            for side in 0..page.head.div_ceil(32) {
                let sums = products::<BITS, true, H>(&page.values, (page.head, page.ahead), side, &quads);
                for (sixteen, sums) in sums.iter().enumerate() {
                    let column = 32 * side + 16 * sixteen;
                    for (row, sums) in sums.iter().enumerate() {
                        let Some(out) = out[row * page.head..][..page.head].get_mut(column..) else { break };
                        add_to(out, sums.floats_of_values(), Lanes16::splat(factors[row]));
                    }
                }
            }
            H
        }

        /// The scales of all tokens; zero beyond the last.
        #[inline]
        #[target_feature(enable = $features)]
        fn widened(scales: &[u16]) -> [f32; MOST_TOKENS] {
            let mut all = [0.0; MOST_TOKENS];
            for (all, scales) in all.as_chunks_mut().0.iter_mut().zip(scales.as_chunks().0) {
                Lanes16::load_halves(scales).store(all);
            }
            all
        }

        /// Stores the weights of the wanted tokens, times the scales of those tokens, as integers; says what those are to be
        /// multiplied with. They are stored where they are read: a copy would wait for its parts.
        #[inline]
        #[target_feature(enable = $features)]
        fn weigh(
            (weights, tokens): (&[f32], &Range<usize>),
            scales: &[f32; MOST_TOKENS],
            codes: &mut [i8; MOST_TOKENS],
        ) -> f32 {
            match weights.first_chunk() {
                Some(weights) if *tokens == (0..MOST_TOKENS) => weigh_page(weights, scales, codes),
                _ => weigh_some((weights, tokens), scales, codes),
            }
        }

        /// The same for some tokens of a page. Apart, because what it calls costs registers.
        #[cold]
        #[inline(never)]
        #[target_feature(enable = $features)]
        fn weigh_some(
            (weights, tokens): (&[f32], &Range<usize>),
            scales: &[f32; MOST_TOKENS],
            codes: &mut [i8; MOST_TOKENS],
        ) -> f32 {
            let mut all = [0.0; MOST_TOKENS];
            all[tokens.clone()].copy_from_slice(&weights[..tokens.len()]);
            weigh_page(&all, scales, codes)
        }

        /// The same for all tokens of a page.
        #[inline]
        #[target_feature(enable = $features)]
        fn weigh_page(weights: &[f32; MOST_TOKENS], scales: &[f32; MOST_TOKENS], codes: &mut [i8; MOST_TOKENS]) -> f32 {
            let mut scaled = [Lanes16::zero(); 4];
            let (weights, scales) = (weights.as_chunks::<16>().0, scales.as_chunks::<16>().0);
            for (scaled, (weights, scales)) in scaled.iter_mut().zip(weights.iter().zip(scales)) {
                *scaled = Lanes16::load(weights).times(Lanes16::load(scales));
            }
            let greatest = Lanes16::greatest(scaled);
            Lanes16::to_bytes(scaled, Lanes16::splat(byte_factor(greatest)), codes);
            greatest / MOST
        }

        /// Adds products to the first sixteen numbers, or to as many as there are.
        #[inline]
        #[target_feature(enable = $features)]
        fn add_to(out: &mut [f32], sums: Lanes16, scale: Lanes16) {
            match out.first_chunk_mut() {
                Some(out) => Lanes16::load(out).add_product(sums, scale).store(out),
                None => add_to_some(out, sums, scale),
            }
        }

        /// The same for less than sixteen.
        #[cold]
        #[inline(never)]
        #[target_feature(enable = $features)]
        fn add_to_some(out: &mut [f32], sums: Lanes16, scale: Lanes16) {
            let mut all = [0.0; 16];
            all[..out.len()].copy_from_slice(out);
            Lanes16::load(&all).add_product(sums, scale).store(&mut all);
            out.copy_from_slice(&all[..out.len()]);
        }

        /// Sums of products for two sixteens of lanes, those from `32 × side` on; the second may lie beyond the last lane.
        #[inline]
        #[target_feature(enable = $features)]
        fn products<const BITS: usize, const VALUES: bool, const H: usize>(
            codes: &Codes<'_>,
            (lanes, ahead): (usize, usize),
            side: usize,
            factors: &[&[[i8; 4]]; H],
        ) -> [[Sums16; H]; 2] {
            let ((low, third), vectors) = (codes.parts(), codes.bits.vectors(lanes));
            // Two sixteens are two vectors of bytes, one of half bytes, or half of one of two bits a number.
            let (first, second) = match BITS {
                8 => (2 * side, (2 * side + 1).min(vectors - 1)),
                4 => (side, side),
                _ => (side / 2, side / 2),
            };
            let pair = side as u32 % 2;
            let quads = low.len() / vectors;
            let mut rows = [&factors[0][..quads]; H];
            for (row, factors) in rows.iter_mut().zip(factors) {
                *row = &factors[..quads];
            }
            let mut sums = [[Sums16::zero(); H]; 2];
            for (quad, of_quad) in low.chunks_exact(vectors).enumerate() {
                let two = TwoSixteens {
                    first: &of_quad[first],
                    second: &of_quad[second],
                    third: if BITS == 3 { &third[quad / 2 * vectors + first] } else { &of_quad[first] },
                    shift: 4 * pair,
                    third_shift: 4 * (quad as u32 % 2) + 2 * pair,
                };
                prefetch_from(two.first, ahead, VECTOR);
                if BITS == 8 {
                    prefetch_from(two.second, ahead, VECTOR);
                }
                if BITS == 3 {
                    prefetch_from(two.third, ahead, VECTOR);
                }
                let (a, b) = Codes64::two::<BITS, VALUES>(two);
                for row in 0..H {
                    let factor = rows[row][quad];
                    sums[0][row] = sums[0][row].add_products::<VALUES>(a, factor);
                    sums[1][row] = sums[1][row].add_products::<VALUES>(b, factor);
                }
            }
            sums
        }
    };
}

pub(crate) use kv_code_kernels;
