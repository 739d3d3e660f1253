//! How interleaved blocks of 256 are read: headers and quants of each format.
//!
//! A macro, because a function belongs to one instruction set. It expects the contents of that set's `words.rs` and of
//! `interleaved256_loops!` in scope.

macro_rules! interleaved256_formats {
    ($features:literal) => {
        /// Byte `at` of every lane.
        #[inline]
        #[target_feature(enable = $features)]
        fn byte(words: Words, at: usize) -> Words {
            and(shift_right(words, 8 * at), splat(0xff))
        }

        /// The header that Q4_K and Q5_K share.
        #[inline]
        #[target_feature(enable = $features)]
        fn header_with_minima<const W: usize>(piece: &Piece<'_, W>, vector: usize) -> Header<8, 4> {
            let at = |at: usize| word(&piece.words, at, vector);
            let (header, [first, second, third]) = (at(0), [at(1), at(2), at(3)]);
            let (six, four, two) = (splat(0x3f3f_3f3f), splat(0x0f0f_0f0f), splat(0x3030_3030));
            let upper = |packed| and(shift_right(packed, 2), two);
            let scales = [and(first, six), or(and(third, four), upper(first))];
            let minima = [and(second, six), or(and(shift_right(third, 4), four), upper(second))];
            let (mut factors, mut offsets) = ([header; 8], [header; 4]);
            for group in 0..8 {
                factors[group] = factor(byte(scales[group / 4], group % 4));
            }
            for pair in 0..4 {
                let bytes = shift_right(minima[pair / 2], 16 * (pair % 2));
                offsets[pair] = or(byte(bytes, 0), shift_left(byte(bytes, 1), 16));
            }
            let (scale, minimum) = (lower_halves(header), lower_halves(shift_right(header, 16)));
            Header { factors, offsets, scale, minimum }
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn header_q6_k(piece: &Piece<'_, { q6_k::BYTES / 4 }>, vector: usize) -> Header<16, 8> {
            let (mut factors, mut offsets) = ([splat(0); 16], [splat(0); 8]);
            for (index, pair) in offsets.iter_mut().enumerate() {
                let packed = word(&piece.words, q6_k::SCALES / 4 + index / 2, vector);
                let packed = shift_right(packed, 16 * (index % 2));
                let (first, second) =
                    (upper_bytes_signed(shift_left(packed, 24)), upper_bytes_signed(shift_left(packed, 16)));
                (factors[2 * index], factors[2 * index + 1]) = (factor(first), factor(second));
                // 32 × both, side by side in one lane.
                *pair = or(and(shift_left(first, 5), splat(0xffff)), shift_left(second, 21));
            }
            Header { factors, offsets, scale: halves(&piece.halves, vector), minimum: splat_float(0.0) }
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn nibbles<const W: usize>(piece: &Piece<'_, W>, at: usize, high: usize, vector: usize) -> Words {
            and(shift_right(word(&piece.words, at, vector), 4 * high), splat(0x0f0f_0f0f))
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn quants_q4_k(piece: &Piece<'_, { q4_k::BYTES / 4 }>, run: usize, at: usize, vector: usize) -> Words {
            nibbles(piece, q4_k::QUANTS / 4 + run / 2 * 8 + at, run % 2, vector)
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn quants_q5_k(piece: &Piece<'_, { q5_k::BYTES / 4 }>, run: usize, at: usize, vector: usize) -> Words {
            let low = nibbles(piece, q5_k::QUANTS / 4 + run / 2 * 8 + at, run % 2, vector);
            let high = shift_right(word(&piece.words, q5_k::HIGH_BITS / 4 + at, vector), run);
            or(low, shift_left(and(high, splat(0x0101_0101)), 4))
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn quants_q6_k(piece: &Piece<'_, { q6_k::BYTES / 4 }>, run: usize, at: usize, vector: usize) -> Words {
            let (half, quarter) = (run / 4, run % 4);
            let low = nibbles(piece, 16 * half + 8 * (quarter % 2) + at, quarter / 2, vector);
            let high = word(&piece.words, q6_k::HIGH_BITS / 4 + 8 * half + at, vector);
            or(low, and(shift_left(shift_right(high, 2 * quarter), 4), splat(0x3030_3030)))
        }

        interleaved256_kernels!($features, Q4K, header_with_minima, quants_q4_k, interleaved_q4_k, turned_q4_k);
        interleaved256_kernels!($features, Q5K, header_with_minima, quants_q5_k, interleaved_q5_k, turned_q5_k);
        interleaved256_kernels!($features, Q6K, header_q6_k, quants_q6_k, interleaved_q6_k, turned_q6_k);
    };
}

/// The two entry points of a format: for interleaved rows, and for rows that lie one after the other.
macro_rules! interleaved256_kernels {
    ($features:literal, $format:ident, $header:ident, $quants:ident, $interleaved:ident, $turned:ident) => {
        #[target_feature(enable = $features)]
        pub(super) fn $interleaved(rows: InterleavedRows<'_>, x: Rows<'_, Int8Block256>, out: &mut TileMut<'_>) {
            let unpack = Unpack {
                format: $format,
                header: |piece: &Piece<'_, _>, vector: usize| $header(piece, vector),
                quants: |piece: &Piece<'_, _>, run: usize, at: usize, vector: usize| $quants(piece, run, at, vector),
            };
            match x.count() {
                ..=1 => multiply::<1, { few_together(1) }, _, _, _, _, _, _, _>(rows, x, out, &unpack),
                ..=2 => multiply::<2, { few_together(2) }, _, _, _, _, _, _, _>(rows, x, out, &unpack),
                ..=4 => multiply::<4, { few_together(4) }, _, _, _, _, _, _, _>(rows, x, out, &unpack),
                count @ ..=FEW if in_sixes(count) => {
                    multiply::<FEW, { few_together(6) }, _, _, _, _, _, _, _>(rows, x, out, &unpack);
                }
                ..=FEW => multiply::<FEW, { few_together(FEW) }, _, _, _, _, _, _, _>(rows, x, out, &unpack),
                _ => multiply::<MANY, TOGETHER, _, _, _, _, _, _, _>(rows, x, out, &unpack),
            }
        }

        #[target_feature(enable = $features)]
        pub(super) fn $turned(rows: WeightRows<'_>, x: Rows<'_, Int8Block256>, out: &mut TileMut<'_>) {
            let unpack = Unpack {
                format: $format,
                header: |piece: &Piece<'_, _>, vector: usize| $header(piece, vector),
                quants: |piece: &Piece<'_, _>, run: usize, at: usize, vector: usize| $quants(piece, run, at, vector),
            };
            match x.count() {
                ..=4 => multiply_turned::<4, { few_together(4) }, _, _, _, _, _, _, _>(rows, x, out, &unpack),
                count @ ..=FEW if in_sixes(count) => {
                    multiply_turned::<FEW, { few_together(6) }, _, _, _, _, _, _, _>(rows, x, out, &unpack);
                }
                ..=FEW => multiply_turned::<FEW, { few_together(FEW) }, _, _, _, _, _, _, _>(rows, x, out, &unpack),
                _ => multiply_turned::<MANY, TOGETHER, _, _, _, _, _, _, _>(rows, x, out, &unpack),
            }
        }
    };
}

pub(crate) use {interleaved256_formats, interleaved256_kernels};
