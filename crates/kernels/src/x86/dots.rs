//! Sums of products of bytes where one instruction multiplies and adds, 32 bytes to a register.
//!
//! A macro, because the same instruction has two names: one of AVX-512, and one of AVX-VNNI on CPUs without it.

macro_rules! vnni_dots {
    ($features:literal, $multiply_fours:ident, $multiply_pairs:ident) => {
        /// sum + a × b, in fours of unsigned a and signed b.
        #[inline]
        #[target_feature(enable = $features)]
        pub(super) fn add_fours(sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
            $multiply_fours(sum, a, b)
        }

        /// sum + pairs × factors, in pairs of 16-bit numbers.
        #[inline]
        #[target_feature(enable = $features)]
        pub(super) fn add_pairs(sum: __m256i, pairs: __m256i, factors: __m256i) -> __m256i {
            $multiply_pairs(sum, pairs, factors)
        }

        /// sum + a × b × factors over four registers of a that are at most 127; factors are 16-bit numbers, in pairs.
        #[inline]
        #[target_feature(enable = $features)]
        pub(super) fn add_scaled(
            sum: __m256i,
            _: u8,
            (a, b): (&[__m256i; 4], [__m256i; 4]),
            factors: __m256i,
        ) -> __m256i {
            let pairs = |at: usize| _mm256_maddubs_epi16(a[at], b[at]);
            let first = add_pairs(add_pairs(sum, pairs(0), factors), pairs(1), factors);
            add_pairs(add_pairs(first, pairs(2), factors), pairs(3), factors)
        }
    };
}

pub(crate) use vnni_dots;
