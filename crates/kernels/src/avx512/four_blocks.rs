//! Formats of nibbles times few columns, a quarter of a register to a run.

use std::arch::x86_64::*;

use super::block32::quarter_sums4;
use crate::activations::{Int8Block32, Rows};
use crate::avx2::lanes::{load16, read_ahead, store4, zero4};
use crate::blocks::{int4_group128, q4_0, q4_1};
use crate::ops::WeightRows;
use crate::pool::TileMut;
use crate::vector::LEAST_TURNED;
use crate::x86::four_blocks_loop::four_blocks_loop;

/// A format of nibbles, of which four runs of 32 take `BYTES`.
trait Nibbles<const BYTES: usize> {
    /// What was added to quants.
    const OFFSET: i32;
    /// The words that hold the scales of the runs.
    const SCALES: [i16; 4];
    /// The words that hold what is added to every number of a run.
    const MINIMA: Option<[i16; 4]> = None;
    /// The nibbles of four runs, a quarter of the register each; `first` holds the first sixty-four of their bytes.
    ///
    /// # Safety
    /// The CPU must have AVX-512 F and BW.
    unsafe fn quants(first: __m512i, bytes: &[u8; BYTES]) -> __m512i;
}

struct Q40;
struct Q41;
struct Int4;

impl Nibbles<{ 4 * q4_0::BYTES }> for Q40 {
    const OFFSET: i32 = q4_0::OFFSET;
    const SCALES: [i16; 4] = [0, 9, 18, 27];

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn quants(first: __m512i, bytes: &[u8; 4 * q4_0::BYTES]) -> __m512i {
        // All words but the four scales, and at the end the eight bytes that `first` lacks.
        let words = _mm512_set_epi16(
            0, 0, 0, 0, 31, 30, 29, 28, 26, 25, 24, 23, 22, 21, 20, 19, 17, 16, 15, 14, 13, 12, 11, 10, 8, 7, 6, 5, 4,
            3, 2, 1,
        );
        let last = i64::from_le_bytes(*bytes.last_chunk().expect("there are more"));
        _mm512_mask_set1_epi64(_mm512_permutexvar_epi16(words, first), 0b1000_0000, last)
    }
}

impl Nibbles<{ 4 * q4_1::BYTES }> for Q41 {
    const OFFSET: i32 = 0;
    const SCALES: [i16; 4] = [0, 10, 20, 30];
    const MINIMA: Option<[i16; 4]> = Some([1, 11, 21, 31]);

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn quants(first: __m512i, bytes: &[u8; 4 * q4_1::BYTES]) -> __m512i {
        // All words but scales and minima; the nibbles of the last block lie behind `first`.
        let words = _mm512_set_epi16(
            0, 0, 0, 0, 0, 0, 0, 0, 29, 28, 27, 26, 25, 24, 23, 22, 19, 18, 17, 16, 15, 14, 13, 12, 9, 8, 7, 6, 5, 4,
            3, 2,
        );
        let last: &[u8; 16] = bytes.last_chunk().expect("there are more");
        // SAFETY: the reference guarantees sixteen readable bytes.
        let last = unsafe { _mm_loadu_si128(last.as_ptr().cast()) };
        _mm512_inserti32x4::<3>(_mm512_permutexvar_epi16(words, first), last)
    }
}

impl Nibbles<{ int4_group128::BYTES }> for Int4 {
    const OFFSET: i32 = int4_group128::OFFSET;
    const SCALES: [i16; 4] = [0; 4];

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn quants(_first: __m512i, bytes: &[u8; int4_group128::BYTES]) -> __m512i {
        let nibbles: &[u8; 64] = bytes.last_chunk().expect("there are more");
        // SAFETY: the reference guarantees sixty-four readable bytes.
        unsafe { _mm512_loadu_si512(nibbles.as_ptr().cast()) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply_q4_0(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    multiply::<{ 4 * q4_0::BYTES }, Q40>(weights, x, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply_q4_1(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    multiply::<{ 4 * q4_1::BYTES }, Q41>(weights, x, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply_int4(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    multiply::<{ int4_group128::BYTES }, Int4>(weights, x, out);
}

four_blocks_loop!("avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c");

/// Four blocks of activations: a quarter of every register belongs to a block.
#[derive(Clone, Copy)]
struct FourBlocks {
    /// The numbers that meet the lower and the upper nibbles.
    low: __m512i,
    high: __m512i,
    /// The sum of a block's numbers, and by how much the offset of the quants makes products too large.
    sums: __m512,
    surplus: __m512i,
    scales: __m512,
}

impl FourBlocks {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2")]
    fn new<const BYTES: usize, F: Nibbles<BYTES>>([a, b, c, d]: &[Int8Block32; 4]) -> FourBlocks {
        let half = |block: &Int8Block32, at: usize| load16(&block.values.as_chunks::<16>().0[at]);
        let sum = |block: &Int8Block32| _mm_set1_epi32(block.sum);
        let scale = |block: &Int8Block32| _mm_castps_si128(_mm_set1_ps(block.scale));
        let sums = join4([sum(a), sum(b), sum(c), sum(d)]);
        FourBlocks {
            low: join4([half(a, 0), half(b, 0), half(c, 0), half(d, 0)]),
            high: join4([half(a, 1), half(b, 1), half(c, 1), half(d, 1)]),
            sums: _mm512_cvtepi32_ps(sums),
            surplus: _mm512_mullo_epi32(sums, _mm512_set1_epi32(F::OFFSET)),
            scales: _mm512_castsi512_ps(join4([scale(a), scale(b), scale(c), scale(d)])),
        }
    }
}

/// Adds the products of four runs of four rows with blocks of `N` columns, run by run but for the first `skipped`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
fn add_products<const N: usize, const BYTES: usize, F: Nibbles<BYTES>>(
    sums: &mut [__m128; N],
    rows: [&[u8; BYTES]; 4],
    x: &[FourBlocks; N],
    skipped: usize,
) {
    let nibbles = _mm512_set1_epi8(15);
    let first = [first_bytes(rows[0]), first_bytes(rows[1]), first_bytes(rows[2]), first_bytes(rows[3])];
    let mut products = [[_mm512_setzero_si512(); 4]; N];
    for row in 0..4 {
        // SAFETY: this function is compiled for more than AVX-512 F and BW.
        let quants = unsafe { F::quants(first[row], rows[row]) };
        let (low, high) =
            (_mm512_and_si512(quants, nibbles), _mm512_and_si512(_mm512_srli_epi16::<4>(quants), nibbles));
        for column in 0..N {
            let product = _mm512_dpbusd_epi32(_mm512_setzero_si512(), low, x[column].low);
            products[column][row] = _mm512_dpbusd_epi32(product, high, x[column].high);
        }
    }
    let scales = halves_of_four(first, F::SCALES);
    // Written out, because the compiler calls what it is given inside `map`.
    #[expect(clippy::manual_map, reason = "a closure is not compiled for this function's instructions")]
    let minima = match F::MINIMA {
        Some(words) => Some(halves_of_four(first, words)),
        None => None,
    };
    for column in 0..N {
        let x = &x[column];
        let totals = quarter_sums4(products[column]);
        let totals = if F::OFFSET == 0 { totals } else { _mm512_sub_epi32(totals, x.surplus) };
        let (factors, totals) = (_mm512_mul_ps(scales, x.scales), _mm512_cvtepi32_ps(totals));
        let mut sum = sums[column];
        macro_rules! add_run {
            ($at:literal) => {
                if $at >= skipped {
                    let of = |register| _mm512_extractf32x4_ps::<$at>(register);
                    sum = _mm_fmadd_ps(of(factors), of(totals), sum);
                    if let Some(minima) = minima {
                        sum = _mm_fmadd_ps(of(_mm512_mul_ps(minima, x.scales)), of(x.sums), sum);
                    }
                }
            };
        }
        add_run!(0);
        add_run!(1);
        add_run!(2);
        add_run!(3);
        sums[column] = sum;
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn first_bytes<const BYTES: usize>(bytes: &[u8; BYTES]) -> __m512i {
    let bytes: &[u8; 64] = bytes.first_chunk().expect("four runs have more");
    // SAFETY: the reference guarantees sixty-four readable bytes.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// Four words of each of four rows as floats: the first word of every row, then the second.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn halves_of_four([a, b, c, d]: [__m512i; 4], [first, second, third, fourth]: [i16; 4]) -> __m512 {
    let words = _mm512_castsi256_si512(_mm256_setr_epi16(
        first, first, first, first, second, second, second, second, third, third, third, third, fourth, fourth, fourth,
        fourth,
    ));
    let halves = _mm512_maskz_permutexvar_epi16(0x1111, words, a);
    let halves = _mm512_mask_permutexvar_epi16(halves, 0x2222, words, b);
    let halves = _mm512_mask_permutexvar_epi16(halves, 0x4444, words, c);
    let halves = _mm512_mask_permutexvar_epi16(halves, 0x8888, words, d);
    _mm512_cvtph_ps(_mm512_castsi512_si256(halves))
}

/// Four quarters of a register.
#[inline]
#[target_feature(enable = "avx512f")]
fn join4([a, b, c, d]: [__m128i; 4]) -> __m512i {
    let low = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(a), b);
    _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(_mm512_castsi256_si512(low), c), d)
}
