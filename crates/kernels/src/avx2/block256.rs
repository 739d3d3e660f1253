//! Formats with blocks of 256: unpacking and integer sums, 32 quants to a register.

use std::arch::x86_64::*;

use super::interleaved256;
use super::lanes::{Floats4, four_halves, integer_sums4, load, load_words, load16, read_ahead, store4, zero4};
use crate::activations::{Int8Block256, Rows};
use crate::blocks::{q4_k, q5_k, q6_k};
use crate::ops::WeightRows;
use crate::pool::TileMut;
use crate::vector::four_rows::four_row_loops;
use crate::vector::{LEAST_TURNED, field, pair};

/// What a block of four rows has beside quants, where scales belong to 32 of them and minima are their own.
struct WithMinima {
    /// Scales 0 to 3, minima 0 to 3, scales 4 to 7, minima 4 to 7 of two rows, and of the other two.
    bytes: [__m256i; 2],
    /// The minima of two rows as eight words each, and of the other two.
    minima: [__m256i; 2],
    /// The scales of the scales, and above them those of the minima.
    factors: __m256,
}

/// The same where scales belong to 16 quants, which are centred.
struct Centred {
    scales: [__m128i; 4],
    factors: __m128,
}

/// One block of one row.
struct Row {
    /// Eight runs of 32 unsigned quants.
    quants: [__m256i; 8],
    /// Where the scales of the runs are.
    scales: __m256i,
}

/// Σ scale × quant × x as eight integers; `pick` says which bytes of the scales a run takes.
#[inline]
#[target_feature(enable = "avx2")]
fn products(row: &Row, x: &[i8; 256], pick: impl Fn(usize) -> i16) -> __m256i {
    let mut sum = _mm256_setzero_si256();
    for (run, x) in x.as_chunks::<32>().0.iter().enumerate() {
        let pairs = _mm256_maddubs_epi16(row.quants[run], load(x));
        let scales = _mm256_shuffle_epi8(row.scales, _mm256_set1_epi16(pick(run)));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, scales));
    }
    sum
}

four_row_loops!("avx2,fma,f16c", __m256i);

/// The heads of four rows of Q4_K or Q5_K, sixteen bytes of the same form: the two factors and twelve bytes of scales
/// and minima. They are unpacked two by two, half a register each.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn with_minima<const BYTES: usize>(blocks: [&[u8; BYTES]; 4]) -> WithMinima {
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
    /// The bytes of one row, twice.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn scales(&self, row: usize) -> __m256i {
        let both = self.bytes[row / 2];
        match row % 2 {
            0 => _mm256_permute2x128_si256::<0x00>(both, both),
            _ => _mm256_permute2x128_si256::<0x11>(both, both),
        }
    }
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
fn add_with_minima(sums: __m128, head: &WithMinima, [a, b, c, d]: [__m256i; 4], x: &Int8Block256) -> __m128 {
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
fn add_centred(sums: __m128, head: &Centred, products: [__m256i; 4], x: &Int8Block256) -> __m128 {
    let x_sums = load(&x.sums);
    let total = |row: usize| {
        let offsets = _mm256_slli_epi16::<5>(_mm256_cvtepi8_epi16(head.scales[row]));
        _mm256_sub_epi32(products[row], _mm256_madd_epi16(offsets, x_sums))
    };
    let totals = integer_sums4(total(0), total(1), total(2), total(3));
    _mm_fmadd_ps(_mm_mul_ps(head.factors, _mm_set1_ps(x.scale)), _mm_cvtepi32_ps(totals), sums)
}

/// Which bytes of a row's scales run `run` takes where they are bytes; the byte above stays empty.
fn byte_of(run: usize) -> i16 {
    i16::from_le_bytes([(run % 4 + run / 4 * 8) as u8, 0x80])
}

/// The same where they are words: for the first 16 quants in the lower half of the register, for the last in the upper.
fn word_of(run: usize) -> i16 {
    i16::from_le_bytes([2 * run as u8, 2 * run as u8 + 1])
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn multiply_q4_k(weights: WeightRows<'_>, x: Rows<'_, Int8Block256>, out: &mut TileMut<'_>) {
    if x.count() >= LEAST_TURNED {
        return interleaved256::turned_q4_k(weights, x, out);
    }
    let quants = |block: &[u8; q4_k::BYTES]| {
        let mut quants = [_mm256_setzero_si256(); 8];
        let nibble = _mm256_set1_epi8(15);
        for pair in 0..4 {
            let bytes = load::<[u8; 32]>(field(block, q4_k::QUANTS + 32 * pair));
            quants[2 * pair] = _mm256_and_si256(bytes, nibble);
            quants[2 * pair + 1] = _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), nibble);
        }
        quants
    };
    let row = |block: &_, head: &WithMinima, at| Row { quants: quants(block), scales: head.scales(at) };
    let products = |row: &Row, x: &Int8Block256| products(row, &x.values, byte_of);
    let add = |sums, head: &_, products, x: &_| add_with_minima(sums, head, products, x);
    multiply(weights, x, out, (|blocks| with_minima(blocks), row, products, add));
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn multiply_q5_k(weights: WeightRows<'_>, x: Rows<'_, Int8Block256>, out: &mut TileMut<'_>) {
    if x.count() >= LEAST_TURNED {
        return interleaved256::turned_q5_k(weights, x, out);
    }
    let quants = |block: &[u8; q5_k::BYTES]| {
        let high = load::<[u8; 32]>(field(block, q5_k::HIGH_BITS));
        let (nibble, fifth) = (_mm256_set1_epi8(15), _mm256_set1_epi8(16));
        let mut quants = [_mm256_setzero_si256(); 8];
        for pair in 0..4 {
            let bytes = load::<[u8; 32]>(field(block, q5_k::QUANTS + 32 * pair));
            // Bit 2 × pair moves to bit 4, bit 2 × pair + 1 as well.
            let shift = |by: i32| match by {
                0.. => _mm256_srl_epi16(high, _mm_cvtsi32_si128(by)),
                _ => _mm256_sll_epi16(high, _mm_cvtsi32_si128(-by)),
            };
            let (first, second) = (shift(2 * pair as i32 - 4), shift(2 * pair as i32 - 3));
            quants[2 * pair] = _mm256_or_si256(_mm256_and_si256(bytes, nibble), _mm256_and_si256(first, fifth));
            quants[2 * pair + 1] = _mm256_or_si256(
                _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), nibble),
                _mm256_and_si256(second, fifth),
            );
        }
        quants
    };
    let row = |block: &_, head: &WithMinima, at| Row { quants: quants(block), scales: head.scales(at) };
    let products = |row: &Row, x: &Int8Block256| products(row, &x.values, byte_of);
    let add = |sums, head: &_, products, x: &_| add_with_minima(sums, head, products, x);
    multiply(weights, x, out, (|blocks| with_minima(blocks), row, products, add));
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn multiply_q6_k(weights: WeightRows<'_>, x: Rows<'_, Int8Block256>, out: &mut TileMut<'_>) {
    if x.count() >= LEAST_TURNED {
        return interleaved256::turned_q6_k(weights, x, out);
    }
    let quants = |block: &[u8; q6_k::BYTES]| {
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
    };
    let head = |blocks: [&[u8; q6_k::BYTES]; 4]| {
        let scales = |row: usize| load16(field(blocks[row], q6_k::SCALES));
        let half = |row: usize| pair(blocks[row], q6_k::SCALE);
        Centred {
            scales: [scales(0), scales(1), scales(2), scales(3)],
            factors: four_halves(half(0), half(1), half(2), half(3)),
        }
    };
    let row = |block: &_, head: &Centred, at: usize| {
        let split = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
        let scales = _mm256_cvtepi8_epi16(_mm_shuffle_epi8(head.scales[at], split));
        Row { quants: quants(block), scales }
    };
    let products = |row: &Row, x: &Int8Block256| products(row, &x.values, word_of);
    let add = |sums, head: &_, products, x: &_| add_centred(sums, head, products, x);
    multiply(weights, x, out, (head, row, products, add));
}
