//! How Q4_K, Q5_K and Q6_K become registers, 32 quants each, and how their integers become floats.

use std::arch::x86_64::*;

use super::lanes::{four_halves, integer_sums4, load, load_words, load16};
use crate::activations::Int8Block256;
use crate::blocks::{q4_k, q5_k, q6_k};
use crate::vector::{field, pair};

/// What a block of four rows has beside quants, where scales belong to 32 of them and minima are their own.
pub(crate) struct WithMinima {
    /// Scales 0 to 3, minima 0 to 3, scales 4 to 7, minima 4 to 7 of two rows, and of the other two.
    bytes: [__m256i; 2],
    /// The minima of two rows as eight words each, and of the other two.
    minima: [__m256i; 2],
    /// The scales of the scales, and above them those of the minima.
    factors: __m256,
}

/// The same where scales belong to 16 quants, which are centred.
pub(crate) struct Centred {
    scales: [__m128i; 4],
    factors: __m128,
}

/// One block of one row.
pub(crate) struct Row {
    /// Eight runs of 32 unsigned quants.
    pub(crate) quants: [__m256i; 8],
    /// The scales of the runs as two equal words of 16 bits each, or those of their halves as one.
    pub(crate) scales: __m256i,
}

/// The heads of four rows of Q4_K or Q5_K, sixteen bytes of the same form: the two factors and twelve bytes of scales
/// and minima. They are unpacked two by two, half a register each.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn with_minima<const BYTES: usize>(blocks: [&[u8; BYTES]; 4]) -> WithMinima {
    let head = |row: usize| load16(field(blocks[row], 0));
    let [a, b, c, d] = [head(0), head(1), head(2), head(3)];
    let bytes = [scales_and_minima(_mm256_set_m128i(b, a)), scales_and_minima(_mm256_set_m128i(d, c))];
    let words = _mm_setr_epi8(4, -1, 5, -1, 6, -1, 7, -1, 12, -1, 13, -1, 14, -1, 15, -1);
    let words = _mm256_broadcastsi128_si256(words);
    let halves = _mm_unpacklo_epi64(_mm_unpacklo_epi32(a, b), _mm_unpacklo_epi32(c, d));
    let halves = _mm_shuffle_epi8(halves, _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    let minima = [_mm256_shuffle_epi8(bytes[0], words), _mm256_shuffle_epi8(bytes[1], words)];
    WithMinima { bytes, minima, factors: _mm256_cvtph_ps(halves) }
}

impl WithMinima {
    /// The scales of one row, each as two equal words of 16 bits.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(crate) fn scales(&self, row: usize) -> __m256i {
        let both = self.bytes[row / 2];
        let bytes = match row % 2 {
            0 => _mm256_permute4x64_epi64::<0b01_00_01_00>(both),
            _ => _mm256_permute4x64_epi64::<0b11_10_11_10>(both),
        };
        let twice = |byte: u8| i32::from_le_bytes([byte, 0x80, byte, 0x80]);
        let words = _mm256_setr_epi32(twice(0), twice(1), twice(2), twice(3), twice(8), twice(9), twice(10), twice(11));
        _mm256_shuffle_epi8(bytes, words)
    }
}

/// What the runs of a row with minima are multiplied with. From memory, because there a number is spread over a register
/// at no cost.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn scales_of_runs(row: &Row) -> [i32; 8] {
    let mut scales = [0; 8];
    // SAFETY: the array has room for a register.
    unsafe { _mm256_storeu_si256(scales.as_mut_ptr().cast(), row.scales) };
    scales
}

/// The scales of the first and of the last eight halves of runs of Q6_K, twice each.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn scales_of_halves(row: &Row) -> [__m256i; 2] {
    [_mm256_permute4x64_epi64::<0b01_00_01_00>(row.scales), _mm256_permute4x64_epi64::<0b11_10_11_10>(row.scales)]
}

/// For each of four runs, where the scale of its first 16 quants lies among eight, and in the upper half that of the last.
pub(crate) static SCALES_OF_HALVES: [[u8; 32]; 4] = {
    let mut places = [[0; 32]; 4];
    let mut at = 0;
    while at < 128 {
        let (run, half) = (at / 32, at % 32 / 16);
        places[run][at % 32] = (4 * run + 2 * half + at % 2) as u8;
        at += 1;
    }
    places
};

/// What makes products of unsigned quants of Q6_K those of centred ones.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn centre(row: &Row, x: &Int8Block256) -> __m256i {
    // The offset is 32, five bits.
    let surplus = _mm256_madd_epi16(_mm256_slli_epi16::<5>(row.scales), load(&x.sums));
    _mm256_sub_epi32(_mm256_setzero_si256(), surplus)
}

/// The 6-bit scales and minima of two rows of Q4_K or Q5_K, by the first sixteen bytes of each: scales 0 to 3, minima 0
/// to 3, scales 4 to 7, minima 4 to 7.
#[inline]
#[target_feature(enable = "avx2")]
fn scales_and_minima(heads: __m256i) -> __m256i {
    // Words of 32 bits: 1 and 2 hold the first four scales and minima and, above them, two bits each of the last four;
    // 3 holds the low nibbles of the last four.
    let first = _mm256_and_si256(heads, _mm256_set1_epi8(0x3f));
    let upper = _mm256_and_si256(_mm256_srli_epi16::<2>(heads), _mm256_set1_epi8(0x30));
    let nibbles = _mm256_shuffle_epi32::<0b11_11_11_11>(heads);
    let nibbles = _mm256_srlv_epi32(nibbles, _mm256_setr_epi32(0, 0, 4, 0, 0, 0, 4, 0));
    let last = _mm256_or_si256(_mm256_and_si256(nibbles, _mm256_set1_epi8(15)), upper);
    let (first, last) = (_mm256_castsi256_ps(first), _mm256_castsi256_ps(last));
    _mm256_castps_si256(_mm256_shuffle_ps::<0b10_01_10_01>(first, last))
}

/// Adds the products of four rows with minima and a block of x.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(crate) fn add_with_minima(sums: __m128, head: &WithMinima, [a, b, c, d]: [__m256i; 4], x: &Int8Block256) -> __m128 {
    let totals = integer_sums4(a, b, c, d);
    let x_sums = _mm256_broadcastsi128_si256(load_words(&x.wide_sums));
    let offset = |rows: usize| _mm256_madd_epi16(head.minima[rows], x_sums);
    let halves = _mm256_hadd_epi32(offset(0), offset(1));
    let offsets = _mm256_hadd_epi32(halves, halves);
    let offsets = _mm_unpacklo_epi32(_mm256_castsi256_si128(offsets), _mm256_extracti128_si256::<1>(offsets));
    let factors = _mm256_mul_ps(head.factors, _mm256_set1_ps(x.scale));
    let sums = _mm_fmadd_ps(_mm256_castps256_ps128(factors), _mm_cvtepi32_ps(totals), sums);
    _mm_fnmadd_ps(_mm256_extractf128_ps::<1>(factors), _mm_cvtepi32_ps(offsets), sums)
}

/// Adds the products of four rows of Q6_K and a block of x.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(crate) fn add_centred(sums: __m128, head: &Centred, [a, b, c, d]: [__m256i; 4], x: &Int8Block256) -> __m128 {
    let totals = integer_sums4(a, b, c, d);
    _mm_fmadd_ps(_mm_mul_ps(head.factors, _mm_set1_ps(x.scale)), _mm_cvtepi32_ps(totals), sums)
}

/// The quants of a block of Q4_K.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn quants_q4_k(block: &[u8; q4_k::BYTES]) -> [__m256i; 8] {
    let mut quants = [_mm256_setzero_si256(); 8];
    let nibble = _mm256_set1_epi8(15);
    for pair in 0..4 {
        let bytes = load::<[u8; 32]>(field(block, q4_k::QUANTS + 32 * pair));
        quants[2 * pair] = _mm256_and_si256(bytes, nibble);
        quants[2 * pair + 1] = _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), nibble);
    }
    quants
}

/// The quants of a block of Q5_K.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn quants_q5_k(block: &[u8; q5_k::BYTES]) -> [__m256i; 8] {
    let (nibble, high) = (_mm256_set1_epi8(15), load::<[u8; 32]>(field(block, q5_k::HIGH_BITS)));
    // Bit b of a byte belongs to run b. Of four bits, one is looked up in a table that has 16 where it is set.
    let bits = [_mm256_and_si256(high, nibble), _mm256_and_si256(_mm256_srli_epi16::<4>(high), nibble)];
    let fifth = |run: usize| _mm256_shuffle_epi8(bit_of_four(run % 4), bits[run / 4]);
    let mut quants = [_mm256_setzero_si256(); 8];
    for pair in 0..4 {
        let bytes = load::<[u8; 32]>(field(block, q5_k::QUANTS + 32 * pair));
        let (low, upper) = (_mm256_and_si256(bytes, nibble), _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), nibble));
        quants[2 * pair] = _mm256_or_si256(low, fifth(2 * pair));
        quants[2 * pair + 1] = _mm256_or_si256(upper, fifth(2 * pair + 1));
    }
    quants
}

/// For each number of four bits, 16 if bit `bit` is set.
#[inline]
#[target_feature(enable = "avx2")]
fn bit_of_four(bit: usize) -> __m256i {
    let mut table = [0_u8; 16];
    let mut number = 0;
    while number < 16 {
        table[number] = ((number >> bit & 1) << 4) as u8;
        number += 1;
    }
    _mm256_broadcastsi128_si256(load16(&table))
}

/// The quants of a block of Q6_K.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn quants_q6_k(block: &[u8; q6_k::BYTES]) -> [__m256i; 8] {
    let (nibble, pairs) = (_mm256_set1_epi8(15), _mm256_set1_epi8(0x30));
    let mut quants = [_mm256_setzero_si256(); 8];
    for half in 0..2 {
        let first = load::<[u8; 32]>(field(block, 64 * half));
        let second = load::<[u8; 32]>(field(block, 64 * half + 32));
        let high = load::<[u8; 32]>(field(block, q6_k::HIGH_BITS + 32 * half));
        let join = |low, high| _mm256_or_si256(_mm256_and_si256(low, nibble), _mm256_and_si256(high, pairs));
        quants[4 * half] = join(first, _mm256_slli_epi16::<4>(high));
        quants[4 * half + 1] = join(second, _mm256_slli_epi16::<2>(high));
        quants[4 * half + 2] = join(_mm256_srli_epi16::<4>(first), high);
        quants[4 * half + 3] = join(_mm256_srli_epi16::<4>(second), _mm256_srli_epi16::<2>(high));
    }
    quants
}

/// The scales of a block of Q6_K, in order, and what they are worth.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn centred(blocks: [&[u8; q6_k::BYTES]; 4]) -> Centred {
    let scales = |row: usize| load16(field(blocks[row], q6_k::SCALES));
    let half = |row: usize| pair(blocks[row], q6_k::SCALE);
    Centred {
        scales: [scales(0), scales(1), scales(2), scales(3)],
        factors: four_halves(half(0), half(1), half(2), half(3)),
    }
}

impl Centred {
    /// The scales of one row as words of 16 bits.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(crate) fn scales(&self, row: usize) -> __m256i {
        _mm256_cvtepi8_epi16(self.scales[row])
    }
}
