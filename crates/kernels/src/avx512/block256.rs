//! Formats with blocks of 256: unpacking and integer sums, 64 quants to a register.

use std::arch::x86_64::*;
use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Instant;

use super::interleaved256;
use super::words::add_pairs;
use crate::activations::{Int8Block256, Rows};
use crate::avx2::lanes::{Floats4, four_halves, load, load_words, load16, read_ahead, store4, zero4};
use crate::blocks::{q4_k, q5_k, q6_k};
use crate::ops::{InterleavedRows, WeightRows};
use crate::pool::TileMut;
use crate::vector::four_rows::four_row_loops;
use crate::vector::{LEAST_TURNED, field, pair};

/// What a block of four rows has beside quants, where scales belong to 32 of them and minima are their own.
struct WithMinima {
    /// The scales of the four rows as eight words each.
    scales: __m512i,
    /// The minima of the four rows as eight words each.
    minima: __m512i,
    /// The scales of the scales, and above them those of the minima.
    factors: __m256,
}

/// The same where scales belong to 16 quants, which are centred.
struct Centred {
    /// The scales of two rows as sixteen words each.
    scales: [__m512i; 2],
    factors: __m128,
}

/// One block of one row.
struct Row {
    /// Four runs of 64 unsigned quants.
    quants: [__m512i; 4],
    /// What the sums of four products of two runs are multiplied with.
    scales: [__m512i; 2],
}

/// Σ scale × quant × x as sixteen integers, where run `i` holds the two groups of 32 of `groups[i]`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2")]
fn products(row: &Row, x: &Int8Block256, groups: [(usize, usize); 4]) -> __m512i {
    let parts = x.values.as_chunks::<32>().0;
    let fours = |run: usize| {
        let (low, high) = groups[run];
        let values = join(load(&parts[low]), load(&parts[high]));
        _mm512_dpbusd_epi32(_mm512_setzero_si512(), row.quants[run], values)
    };
    // Four products of at most 63 × 127 fit sixteen bits.
    let first = _mm512_madd_epi16(_mm512_packs_epi32(fours(0), fours(1)), row.scales[0]);
    add_pairs(first, _mm512_packs_epi32(fours(2), fours(3)), row.scales[1])
}

/// For each word of two runs that were packed together, which quarter of the first or the second it comes from.
#[inline]
#[target_feature(enable = "avx512f")]
fn packed_words(first: [u64; 4], second: [u64; 4]) -> __m512i {
    let four = |word: u64| (word * 0x0001_0001_0001_0001) as i64;
    _mm512_setr_epi64(
        four(first[0]),
        four(second[0]),
        four(first[1]),
        four(second[1]),
        four(first[2]),
        four(second[2]),
        four(first[3]),
        four(second[3]),
    )
}

/// Where a format keeps two neighbours of 32 in the nibbles of the same bytes, a run holds the low or the high ones.
const NIBBLES: [(usize, usize); 4] = [(0, 2), (1, 3), (4, 6), (5, 7)];
const IN_ORDER: [(usize, usize); 4] = [(0, 1), (2, 3), (4, 5), (6, 7)];

/// The sums of four vectors of sixteen integers.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx2")]
fn sums4([a, b, c, d]: [__m512i; 4]) -> __m128i {
    let pairs = |a, b| _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let (ab, cd) = (pairs(a, b), pairs(c, d));
    let quarters = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    let halves = _mm256_add_epi32(_mm512_castsi512_si256(quarters), _mm512_extracti64x4_epi64::<1>(quarters));
    _mm_add_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256::<1>(halves))
}

/// Two halves of 32 numbers that lie apart.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn join(low: __m256i, high: __m256i) -> __m512i {
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
}

four_row_loops!("avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c", __m512i, _mm512_setzero_si512());

/// Sixty-four bytes of a block.
#[inline]
#[target_feature(enable = "avx512f")]
fn load64<const BYTES: usize>(block: &[u8; BYTES], at: usize) -> __m512i {
    let bytes: &[u8; 64] = field(block, at);
    // SAFETY: the reference guarantees sixty-four readable bytes.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// The heads of four rows of Q4_K or Q5_K, sixteen bytes of the same form: the two factors and twelve bytes of scales
/// and minima. The four are unpacked together, a quarter of a register each.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,f16c")]
fn with_minima<const BYTES: usize>(blocks: [&[u8; BYTES]; 4]) -> WithMinima {
    let head = |row: usize| load16(field(blocks[row], 0));
    let [a, b, c, d] = [head(0), head(1), head(2), head(3)];
    let heads = join(_mm256_set_m128i(b, a), _mm256_set_m128i(d, c));
    // Words of 32 bits: 1 and 2 hold the first four scales and minima and, above them, two bits each of the last four;
    // 3 holds the low nibbles of the last four.
    let first = _mm512_and_si512(heads, _mm512_set1_epi8(0x3f));
    let upper = _mm512_and_si512(_mm512_srli_epi16::<2>(heads), _mm512_set1_epi8(0x30));
    let nibbles = _mm512_srlv_epi32(_mm512_shuffle_epi32::<0b11_11_11_11>(heads), spread([0, 0, 4, 0]));
    let last = _mm512_or_si512(_mm512_and_si512(nibbles, _mm512_set1_epi8(15)), upper);
    // Scales 0 to 3, minima 0 to 3, scales 4 to 7, minima 4 to 7.
    let bytes =
        _mm512_castps_si512(_mm512_shuffle_ps::<0b10_01_10_01>(_mm512_castsi512_ps(first), _mm512_castsi512_ps(last)));
    let minima =
        _mm512_shuffle_epi8(bytes, spread([word_pair(4, 5), word_pair(6, 7), word_pair(12, 13), word_pair(14, 15)]));
    let halves = _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), heads);
    let halves = _mm_shuffle_epi8(
        _mm512_castsi512_si128(halves),
        _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15),
    );
    let scales =
        _mm512_shuffle_epi8(bytes, spread([word_pair(0, 1), word_pair(2, 3), word_pair(8, 9), word_pair(10, 11)]));
    WithMinima { scales, minima, factors: _mm256_cvtph_ps(halves) }
}

impl WithMinima {
    /// The scales of the packed runs of one row.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn scales(&self, row: usize) -> [__m512i; 2] {
        // A run holds the low or the high nibbles of two groups of 32 bytes: its halves are two sub-blocks apart.
        let pick = |first: u64| {
            let words =
                packed_words([first, first, first + 2, first + 2], [first + 1, first + 1, first + 3, first + 3]);
            _mm512_permutexvar_epi16(words, self.scales)
        };
        [pick(8 * row as u64), pick(8 * row as u64 + 4)]
    }
}

/// Four words of 32 bits, the same in every quarter.
#[inline]
#[target_feature(enable = "avx512f")]
fn spread([a, b, c, d]: [i32; 4]) -> __m512i {
    _mm512_broadcast_i32x4(_mm_setr_epi32(a, b, c, d))
}

/// One word throughout the lower half, another throughout the upper.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn in_halves(low: i16, high: i16) -> __m512i {
    join(_mm256_set1_epi16(low), _mm256_set1_epi16(high))
}

/// A shuffle that makes two words of two bytes.
const fn word_pair(low: u8, high: u8) -> i32 {
    i32::from_le_bytes([low, 0x80, high, 0x80])
}

/// Adds the products of four rows with minima and a block of x.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma")]
fn add_with_minima(sums: __m128, head: &WithMinima, products: [__m512i; 4], x: &Int8Block256) -> __m128 {
    let totals = sums4(products);
    let offsets = _mm512_madd_epi16(head.minima, _mm512_broadcast_i32x4(load_words(&x.wide_sums)));
    let offsets = _mm512_add_epi32(offsets, _mm512_shuffle_epi32::<0b10_11_00_01>(offsets));
    let offsets = _mm512_add_epi32(offsets, _mm512_shuffle_epi32::<0b01_00_11_10>(offsets));
    let rows = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    let offsets = _mm512_castsi512_si128(_mm512_permutexvar_epi32(rows, offsets));
    let factors = _mm256_mul_ps(head.factors, _mm256_set1_ps(x.scale));
    let sums = _mm_fmadd_ps(_mm256_castps256_ps128(factors), _mm_cvtepi32_ps(totals), sums);
    _mm_fnmadd_ps(_mm256_extractf128_ps::<1>(factors), _mm_cvtepi32_ps(offsets), sums)
}

/// Adds the products of four rows of Q6_K and a block of x.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma")]
fn add_centred(sums: __m128, head: &Centred, products: [__m512i; 4], x: &Int8Block256) -> __m128 {
    // Quants are 32 too large: eight of those sums of each row, to be subtracted where their row's products are added up.
    let x_sums = _mm512_broadcast_i64x4(load(&x.sums));
    let offsets = |rows: usize| _mm512_madd_epi16(_mm512_slli_epi16::<5>(head.scales[rows]), x_sums);
    let (ab, cd) = (offsets(0), offsets(1));
    let first = |pair| _mm512_zextsi256_si512(_mm512_castsi512_si256(pair));
    let second = |pair| _mm512_zextsi256_si512(_mm512_extracti64x4_epi64::<1>(pair));
    let totals = sums4([
        _mm512_sub_epi32(products[0], first(ab)),
        _mm512_sub_epi32(products[1], second(ab)),
        _mm512_sub_epi32(products[2], first(cd)),
        _mm512_sub_epi32(products[3], second(cd)),
    ]);
    let factors = _mm_mul_ps(head.factors, _mm_set1_ps(x.scale));
    _mm_fmadd_ps(factors, _mm_cvtepi32_ps(totals), sums)
}

/// Whether this CPU multiplies 32-bit numbers in one instruction, as AMD's do; Intel's split it in two. Measured, because
/// nothing but speed depends on it.
fn multiplies_wide() -> bool {
    static WIDE: OnceLock<bool> = OnceLock::new();
    *WIDE.get_or_init(|| {
        let best = |multiply: &dyn Fn()| {
            let times = (0..ATTEMPTS).map(|_| {
                let begin = Instant::now();
                multiply();
                begin.elapsed()
            });
            times.min().expect("some attempts").as_secs_f64()
        };
        // SAFETY: kernels of this table alone ask, and are called only where the CPU has its instructions.
        let (wide, narrow) = (best(&|| unsafe { multiply_wide() }), best(&|| unsafe { multiply_narrow() }));
        wide < 1.5 * narrow
    })
}

/// Multiplications of a measurement, how many of them do not wait for each other, and how often it is made.
const ROUNDS: usize = 500;
const CHAINS: usize = 12;
const ATTEMPTS: usize = 20;

#[target_feature(enable = "avx512f")]
fn multiply_wide() {
    let mut numbers = black_box([_mm512_set1_epi32(3); CHAINS]);
    for _ in 0..ROUNDS {
        for numbers in &mut numbers {
            *numbers = _mm512_mullo_epi32(*numbers, *numbers);
        }
    }
    black_box(numbers);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn multiply_narrow() {
    let mut numbers = black_box([_mm512_set1_epi32(3); CHAINS]);
    for _ in 0..ROUNDS {
        for numbers in &mut numbers {
            *numbers = add_pairs(*numbers, *numbers, *numbers);
        }
    }
    black_box(numbers);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn interleaved_q4_k(rows: InterleavedRows<'_>, x: Rows<'_, Int8Block256>, out: &mut TileMut<'_>) {
    match multiplies_wide() {
        true => interleaved256::interleaved_q4_k_wide(rows, x, out),
        false => interleaved256::interleaved_q4_k(rows, x, out),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply_q4_k(weights: WeightRows<'_>, x: Rows<'_, Int8Block256>, out: &mut TileMut<'_>) {
    if x.count() >= LEAST_TURNED {
        return match multiplies_wide() {
            true => interleaved256::turned_q4_k_wide(weights, x, out),
            false => interleaved256::turned_q4_k(weights, x, out),
        };
    }
    let quants = |block: &[u8; q4_k::BYTES]| {
        let nibble = _mm512_set1_epi8(15);
        let (first, second) = (load64(block, q4_k::QUANTS), load64(block, q4_k::QUANTS + 64));
        let low = |bytes| _mm512_and_si512(bytes, nibble);
        let high = |bytes| _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), nibble);
        [low(first), high(first), low(second), high(second)]
    };
    let row = |block: &_, head: &WithMinima, at| Row { quants: quants(block), scales: head.scales(at) };
    let products = |row: &Row, x: &_| products(row, x, NIBBLES);
    let add = |sums, head: &_, products, x: &_| add_with_minima(sums, head, products, x);
    multiply(weights, x, out, (|blocks| with_minima(blocks), row, products, add));
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply_q5_k(weights: WeightRows<'_>, x: Rows<'_, Int8Block256>, out: &mut TileMut<'_>) {
    if x.count() >= LEAST_TURNED {
        return interleaved256::turned_q5_k(weights, x, out);
    }
    let quants = |block: &[u8; q5_k::BYTES]| {
        let (nibble, fifth) = (_mm512_set1_epi8(15), _mm512_set1_epi8(16));
        let (first, second) = (load64(block, q5_k::QUANTS), load64(block, q5_k::QUANTS + 64));
        // Bit b of a byte belongs to sub-block b: both halves of a run take their bit from the same 32 bytes.
        let bits = _mm512_broadcast_i64x4(load::<[u8; 32]>(field(block, q5_k::HIGH_BITS)));
        let complete =
            |nibbles, bits| _mm512_or_si512(_mm512_and_si512(nibbles, nibble), _mm512_and_si512(bits, fifth));
        [
            complete(first, _mm512_sllv_epi16(bits, in_halves(4, 2))),
            complete(_mm512_srli_epi16::<4>(first), _mm512_sllv_epi16(bits, in_halves(3, 1))),
            complete(second, _mm512_srlv_epi16(bits, in_halves(0, 2))),
            complete(_mm512_srli_epi16::<4>(second), _mm512_srlv_epi16(bits, in_halves(1, 3))),
        ]
    };
    let row = |block: &_, head: &WithMinima, at| Row { quants: quants(block), scales: head.scales(at) };
    let products = |row: &Row, x: &_| products(row, x, NIBBLES);
    let add = |sums, head: &_, products, x: &_| add_with_minima(sums, head, products, x);
    multiply(weights, x, out, (|blocks| with_minima(blocks), row, products, add));
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply_q6_k(weights: WeightRows<'_>, x: Rows<'_, Int8Block256>, out: &mut TileMut<'_>) {
    if x.count() >= LEAST_TURNED {
        return interleaved256::turned_q6_k(weights, x, out);
    }
    let quants = |block: &[u8; q6_k::BYTES]| {
        let (nibble, pairs) = (_mm512_set1_epi8(15), _mm512_set1_epi8(0x30));
        let mut quants = [_mm512_setzero_si512(); 4];
        for half in 0..2 {
            let low = load64(block, 64 * half);
            let bits = _mm512_broadcast_i64x4(load::<[u8; 32]>(field(block, q6_k::HIGH_BITS + 32 * half)));
            let complete =
                |nibbles, bits| _mm512_or_si512(_mm512_and_si512(nibbles, nibble), _mm512_and_si512(bits, pairs));
            quants[2 * half] = complete(low, _mm512_sllv_epi16(bits, in_halves(4, 2)));
            quants[2 * half + 1] = complete(_mm512_srli_epi16::<4>(low), _mm512_srlv_epi16(bits, in_halves(0, 2)));
        }
        quants
    };
    let head = |blocks: [&[u8; q6_k::BYTES]; 4]| {
        let scales = |row: usize| load16(field(blocks[row], q6_k::SCALES));
        let words = |low, high| _mm512_cvtepi8_epi16(_mm256_set_m128i(scales(high), scales(low)));
        let half = |row: usize| pair(blocks[row], q6_k::SCALE);
        Centred { scales: [words(0, 1), words(2, 3)], factors: four_halves(half(0), half(1), half(2), half(3)) }
    };
    let row = |block: &_, head: &Centred, at: usize| {
        let pick = |first: u64| {
            let words =
                packed_words([first, first + 1, first + 2, first + 3], [first + 4, first + 5, first + 6, first + 7]);
            _mm512_permutexvar_epi16(words, head.scales[at / 2])
        };
        let first = 16 * (at as u64 % 2);
        Row { quants: quants(block), scales: [pick(first), pick(first + 8)] }
    };
    let products = |row: &Row, x: &_| products(row, x, IN_ORDER);
    let add = |sums, head: &_, products, x: &_| add_centred(sums, head, products, x);
    multiply(weights, x, out, (head, row, products, add));
}
