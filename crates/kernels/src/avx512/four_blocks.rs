//! Formats of nibbles times few columns: four runs of 32 of four rows at a time. A run is so small that scaling each by
//! itself would take longer than reading it.

use std::arch::x86_64::*;

use super::block32::quarter_sums4;
use crate::activations::{Int8Block32, Rows};
use crate::avx2::lanes::{load16, read_ahead, store4};
use crate::blocks::{int4_group128, q4_0, q4_1};
use crate::ops::WeightRows;
use crate::pool::TileMut;

/// Fours of rows that share activations in the form of [`FourBlocks`], and how many of these are kept at hand.
const SHARING: usize = 8;
const AT_HAND: usize = 16;

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

/// Multiplies rows, four at a time; a lane of the float sums belongs to a row.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
fn multiply<const BYTES: usize, F: Nibbles<BYTES>>(
    weights: WeightRows<'_>,
    x: Rows<'_, Int8Block32>,
    out: &mut TileMut<'_>,
) {
    for first in (0..weights.fours()).step_by(SHARING) {
        let fours = first..weights.fours().min(first + SHARING);
        for column in 0..x.count() {
            let (x_fours, x_rest) = x.row(column).as_chunks::<4>();
            let mut sums = [_mm_setzero_ps(); SHARING];
            for (part, x) in x_fours.chunks(AT_HAND).enumerate() {
                let mut at_hand = [FourBlocks::ZERO; AT_HAND];
                at_hand.iter_mut().zip(x).for_each(|(at_hand, x)| *at_hand = FourBlocks::new(x));
                let at_hand = &at_hand[..x.len()];
                for (four, sums) in fours.clone().zip(&mut sums) {
                    let [a, b, c, d] = weights.four(four).map(|row| &row.as_chunks::<BYTES>().0[AT_HAND * part..]);
                    for ((((x, a), b), c), d) in at_hand.iter().zip(a).zip(b).zip(c).zip(d) {
                        read_ahead(weights.ahead, [a, b, c, d]);
                        *sums = x.add_products::<BYTES, F>(*sums, [a, b, c, d], 4);
                    }
                }
            }
            for (four, sums) in fours.clone().zip(&mut sums) {
                if !x_rest.is_empty() {
                    // The last few runs, filled up with zeros whose products are dropped.
                    let x = std::array::from_fn(|at| *x_rest.get(at).unwrap_or(&Int8Block32::ZERO));
                    let rows = weights.four(four).map(|row| {
                        let (mut filled, rest) = ([0; BYTES], row.as_chunks::<BYTES>().1);
                        filled[..rest.len()].copy_from_slice(rest);
                        filled
                    });
                    *sums = FourBlocks::new(&x).add_products::<BYTES, F>(*sums, rows.each_ref(), x_rest.len());
                }
                out.put4(column, four, store4(*sums));
            }
        }
    }
}

/// Four blocks of activations: a quarter of every register belongs to a block.
#[derive(Clone, Copy)]
struct FourBlocks {
    /// The numbers that meet the lower and the upper nibbles.
    low: __m512i,
    high: __m512i,
    /// The sum of a block's numbers.
    sums: __m512i,
    scales: __m512,
}

impl FourBlocks {
    // SAFETY: zeros are registers of any kind.
    const ZERO: FourBlocks = unsafe { std::mem::zeroed() };

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2")]
    fn new([a, b, c, d]: &[Int8Block32; 4]) -> FourBlocks {
        let half = |block: &Int8Block32, at: usize| load16(&block.values.as_chunks::<16>().0[at]);
        let sum = |block: &Int8Block32| _mm_set1_epi32(block.sum);
        let scale = |block: &Int8Block32| _mm_castps_si128(_mm_set1_ps(block.scale));
        FourBlocks {
            low: join4([half(a, 0), half(b, 0), half(c, 0), half(d, 0)]),
            high: join4([half(a, 1), half(b, 1), half(c, 1), half(d, 1)]),
            sums: join4([sum(a), sum(b), sum(c), sum(d)]),
            scales: _mm512_castsi512_ps(join4([scale(a), scale(b), scale(c), scale(d)])),
        }
    }

    /// Adds the products with the first `count` of four runs of four rows, run by run.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
    fn add_products<const BYTES: usize, F: Nibbles<BYTES>>(
        &self,
        sums: __m128,
        rows: [&[u8; BYTES]; 4],
        count: usize,
    ) -> __m128 {
        let nibbles = _mm512_set1_epi8(15);
        let (a, b, c, d) = (first_bytes(rows[0]), first_bytes(rows[1]), first_bytes(rows[2]), first_bytes(rows[3]));
        let product = |first, bytes| {
            // SAFETY: this function is compiled for more than AVX-512 F and BW.
            let quants = unsafe { F::quants(first, bytes) };
            let low = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_and_si512(quants, nibbles), self.low);
            _mm512_dpbusd_epi32(low, _mm512_and_si512(_mm512_srli_epi16::<4>(quants), nibbles), self.high)
        };
        let totals =
            quarter_sums4([product(a, rows[0]), product(b, rows[1]), product(c, rows[2]), product(d, rows[3])]);
        let surplus = _mm512_mullo_epi32(self.sums, _mm512_set1_epi32(F::OFFSET));
        let totals = _mm512_cvtepi32_ps(_mm512_sub_epi32(totals, surplus));
        let halves = |words: [i16; 4]| _mm512_mul_ps(halves_of_four([a, b, c, d], words), self.scales);
        let factors = halves(F::SCALES);
        // Written out, because the compiler calls what it is given inside `map`.
        #[expect(clippy::manual_map, reason = "a closure is not compiled for this function's instructions")]
        let added = match F::MINIMA {
            Some(words) => Some((halves(words), _mm512_cvtepi32_ps(self.sums))),
            None => None,
        };
        let mut sums = sums;
        macro_rules! add_block {
            ($at:literal) => {
                if $at < count {
                    let of = |register| _mm512_extractf32x4_ps::<$at>(register);
                    sums = _mm_fmadd_ps(of(factors), of(totals), sums);
                    if let Some((minima, x_sums)) = added {
                        sums = _mm_fmadd_ps(of(minima), of(x_sums), sums);
                    }
                }
            };
        }
        add_block!(0);
        add_block!(1);
        add_block!(2);
        add_block!(3);
        sums
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
