//! The two products of attention over one page of small integers, several query heads at a time.
//!
//! A macro, because a function belongs to one instruction set. It expects `Lanes16`, sixteen floats, `Sums16`, sixteen sums of
//! products, `Codes64`, four numbers of each of sixteen lanes, `prefetch_from`, which has memory brought nearer, and `HEADS`,
//! the query heads that share one pass.

macro_rules! kv_code_kernels {
    ($features:literal) => {
        #[target_feature(enable = $features)]
        pub(super) fn scores(page: &KeyCodes<'_>, out: &mut [f32], stride: usize) {
            match page.keys.bits {
                CodeBits::Four => scores_of::<4>(page, (out, stride)),
                CodeBits::Eight => scores_of::<8>(page, (out, stride)),
            }
        }

        #[target_feature(enable = $features)]
        pub(super) fn mix(weights: (&[f32], usize), page: &ValueCodes<'_>, out: &mut [f32]) {
            match page.values.bits {
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
            let tokens = page.keys.scales.len();
            let mut factors = [(page.query(first), Rounded::default()); H];
            let mut common = [0.0; H];
            for row in 0..H {
                factors[row] = (page.query(first + row), page.query_codes.rounded[first + row]);
                common[row] = page.common(first + row);
            }
            let mut side = page.tokens.start / 32;
            while side * 32 < page.tokens.end {
                let sums = products::<BITS, H>(&page.keys, (tokens, page.ahead), side, &factors);
                for (sixteen, sums) in sums.iter().enumerate() {
                    let token = 32 * side + 16 * sixteen;
                    let Some(scales) = page.keys.scales.get(token..).and_then(|scales| scales.first_chunk()) else {
                        break;
                    };
                    let scales = Lanes16::load_halves(scales);
                    for (row, sums) in sums.iter().enumerate() {
                        let scale = Lanes16::splat(factors[row].1.scale);
                        let scale = Lanes16::zero().add_product(scales, scale);
                        let scores = Lanes16::splat(common[row]).add_product(*sums, scale);
                        store_wanted(&scores, token, &page.tokens, &mut out[row * stride..]);
                    }
                }
                side += 1;
            }
            H
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn mix_of<const BITS: usize>((weights, stride): (&[f32], usize), page: &ValueCodes<'_>, out: &mut [f32]) {
            let count = out.len() / page.head;
            let mut first = 0;
            while first < count {
                let (weights, out) = ((&weights[first * stride..], stride), &mut out[first * page.head..]);
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
            page: &ValueCodes<'_>,
            out: &mut [f32],
        ) -> usize {
            let mut codes = [const { WeightCodes::NONE }; H];
            for (row, codes) in codes.iter_mut().enumerate() {
                *codes = page.weigh(&weights[row * stride..][..page.tokens.len()]);
            }
            let mut factors = [(codes[0].quads(), codes[0].rounded); H];
            for row in 0..H {
                factors[row] = (codes[row].quads(), codes[row].rounded);
            }
            for side in 0..page.head.div_ceil(32) {
                let sums = products::<BITS, H>(&page.values, (page.head, page.ahead), side, &factors);
                for (sixteen, sums) in sums.iter().enumerate() {
                    let column = 32 * side + 16 * sixteen;
                    for (row, sums) in sums.iter().enumerate() {
                        let scale = Lanes16::splat(factors[row].1.scale);
                        let Some(out) = out[row * page.head..][..page.head].get_mut(column..) else { break };
                        add_to(out, *sums, scale);
                    }
                }
            }
            H
        }

        /// Adds products to the first sixteen numbers, or to as many as there are.
        #[inline]
        #[target_feature(enable = $features)]
        fn add_to(out: &mut [f32], sums: Lanes16, scale: Lanes16) {
            if let Some(out) = out.first_chunk_mut() {
                Lanes16::load(out).add_product(sums, scale).store(out);
                return;
            }
            let mut all = [0.0; 16];
            all[..out.len()].copy_from_slice(out);
            Lanes16::load(&all).add_product(sums, scale).store(&mut all);
            out.copy_from_slice(&all[..out.len()]);
        }

        /// Sums of products for two sixteens of lanes, those from `32 × side` on; the second may lie beyond the last lane.
        #[inline]
        #[target_feature(enable = $features)]
        fn products<const BITS: usize, const H: usize>(
            codes: &Codes<'_>,
            (lanes, ahead): (usize, usize),
            side: usize,
            factors: &[(&[[i8; 4]], Rounded); H],
        ) -> [[Lanes16; H]; 2] {
            let (all, vectors) = (codes.codes.as_chunks::<VECTOR>().0, codes.bits.vectors(lanes));
            // Two sixteens are two vectors of bytes, or one of half bytes.
            let (first, second) = if BITS == 8 { (2 * side, (2 * side + 1).min(vectors - 1)) } else { (side, side) };
            let mut sums = [[Sums16::zero(); 2]; H];
            for (quad, of_quad) in all.chunks_exact(vectors).enumerate() {
                let (a, b) = (&of_quad[first], &of_quad[second]);
                prefetch_from(a, ahead, VECTOR);
                if BITS == 8 {
                    prefetch_from(b, ahead, VECTOR);
                }
                let (a, b) = Codes64::two::<BITS>(a, b);
                for (sums, (factors, _)) in sums.iter_mut().zip(factors) {
                    let factor = factors[quad];
                    sums[0] = sums[0].add_products::<BITS>(a, factor);
                    sums[1] = sums[1].add_products::<BITS>(b, factor);
                }
            }
            let mut floats = [[Lanes16::zero(); H]; 2];
            for (row, sums) in sums.iter().enumerate() {
                let total = factors[row].1.total;
                floats[0][row] = sums[0].floats::<BITS>(total);
                floats[1][row] = sums[1].floats::<BITS>(total);
            }
            floats
        }
    };
}

pub(crate) use kv_code_kernels;
