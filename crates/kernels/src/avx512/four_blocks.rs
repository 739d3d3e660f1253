//! Q4_0 and Q4_1 times few columns: four blocks of four rows at a time. Their blocks are so small that scaling them one by
//! one would take longer than reading them.

use std::arch::x86_64::*;

use super::block32::quarter_sums4;
use crate::activations::{Int8Block32, Rows};
use crate::avx2::lanes::{load16, read_ahead, store4};
use crate::blocks::{q4_0, q4_1};
use crate::ops::WeightRows;
use crate::pool::TileMut;

/// Fours of rows that share activations in the form of [`FourBlocks`], and how many of these are kept at hand.
const SHARING: usize = 8;
const AT_HAND: usize = 64;

/// A format whose blocks are an f16 scale, perhaps an f16 minimum, and sixteen bytes of nibbles.
trait Nibbles<const BYTES: usize> {
    /// What was added to quants.
    const OFFSET: i32;
    /// Whether an f16 that is added to every number follows the scale.
    const MINIMUM: bool;
    /// The nibbles of four blocks, a quarter of the register each; `first` holds their first sixty-four bytes.
    ///
    /// # Safety
    /// The CPU must have AVX-512 F and BW.
    unsafe fn quants(first: __m512i, blocks: &[[u8; BYTES]; 4]) -> __m512i;
}

struct Q40;
struct Q41;

impl Nibbles<{ q4_0::BYTES }> for Q40 {
    const OFFSET: i32 = q4_0::OFFSET;
    const MINIMUM: bool = false;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn quants(first: __m512i, blocks: &[[u8; q4_0::BYTES]; 4]) -> __m512i {
        // All words but the four scales, and at the end the eight bytes that `first` lacks.
        let words = _mm512_set_epi16(
            0, 0, 0, 0, 31, 30, 29, 28, 26, 25, 24, 23, 22, 21, 20, 19, 17, 16, 15, 14, 13, 12, 11, 10, 8, 7, 6, 5, 4,
            3, 2, 1,
        );
        let last = i64::from_le_bytes(*blocks[3].last_chunk().expect("a block has more"));
        _mm512_mask_set1_epi64(_mm512_permutexvar_epi16(words, first), 0b1000_0000, last)
    }
}

impl Nibbles<{ q4_1::BYTES }> for Q41 {
    const OFFSET: i32 = 0;
    const MINIMUM: bool = true;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn quants(first: __m512i, blocks: &[[u8; q4_1::BYTES]; 4]) -> __m512i {
        // All words but scales and minima; the nibbles of the last block lie behind `first`.
        let words = _mm512_set_epi16(
            0, 0, 0, 0, 0, 0, 0, 0, 29, 28, 27, 26, 25, 24, 23, 22, 19, 18, 17, 16, 15, 14, 13, 12, 9, 8, 7, 6, 5, 4,
            3, 2,
        );
        let last: &[u8; 16] = blocks[3].last_chunk().expect("a block has more");
        // SAFETY: the reference guarantees sixteen readable bytes.
        let last = unsafe { _mm_loadu_si128(last.as_ptr().cast()) };
        _mm512_inserti32x4::<3>(_mm512_permutexvar_epi16(words, first), last)
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply_q4_0(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    multiply::<{ q4_0::BYTES }, Q40>(weights, x, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply_q4_1(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    multiply::<{ q4_1::BYTES }, Q41>(weights, x, out);
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
                    let [a, b, c, d] =
                        weights.four(four).map(|row| &row.as_chunks::<BYTES>().0.as_chunks::<4>().0[AT_HAND * part..]);
                    for ((((x, a), b), c), d) in at_hand.iter().zip(a).zip(b).zip(c).zip(d) {
                        read_ahead(weights.ahead, [a, b, c, d]);
                        *sums = x.add_products::<BYTES, F>(*sums, [a, b, c, d], 4);
                    }
                }
            }
            for (four, sums) in fours.clone().zip(&mut sums) {
                if !x_rest.is_empty() {
                    // The last few blocks, filled up with others whose products are dropped.
                    let x_last =
                        FourBlocks::new(&std::array::from_fn(|at| *x_rest.get(at).unwrap_or(&Int8Block32::ZERO)));
                    let rows = weights.four(four).map(|row| {
                        let rest = &row.as_chunks::<BYTES>().0[4 * x_fours.len()..];
                        std::array::from_fn(|at| *rest.get(at).unwrap_or(&[0; BYTES]))
                    });
                    *sums = x_last.add_products::<BYTES, F>(*sums, rows.each_ref(), x_rest.len());
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

    /// Adds the products with the first `count` of four blocks of four rows, block by block.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
    fn add_products<const BYTES: usize, F: Nibbles<BYTES>>(
        &self,
        sums: __m128,
        rows: [&[[u8; BYTES]; 4]; 4],
        count: usize,
    ) -> __m128 {
        let nibbles = _mm512_set1_epi8(15);
        let (a, b, c, d) = (first_bytes(rows[0]), first_bytes(rows[1]), first_bytes(rows[2]), first_bytes(rows[3]));
        let product = |first, blocks| {
            // SAFETY: this function is compiled for more than AVX-512 F and BW.
            let bytes = unsafe { F::quants(first, blocks) };
            let low = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_and_si512(bytes, nibbles), self.low);
            _mm512_dpbusd_epi32(low, _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), nibbles), self.high)
        };
        let totals =
            quarter_sums4([product(a, rows[0]), product(b, rows[1]), product(c, rows[2]), product(d, rows[3])]);
        let surplus = _mm512_mullo_epi32(self.sums, _mm512_set1_epi32(F::OFFSET));
        let totals = _mm512_cvtepi32_ps(_mm512_sub_epi32(totals, surplus));
        let halves = |at: i16| _mm512_mul_ps(halves_of_four([a, b, c, d], at, (BYTES / 2) as i16), self.scales);
        let factors = halves(0);
        let added = if F::MINIMUM { Some((halves(1), _mm512_cvtepi32_ps(self.sums))) } else { None };
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

/// The first sixty-four bytes of four blocks.
#[inline]
#[target_feature(enable = "avx512f")]
fn first_bytes<const BYTES: usize>(blocks: &[[u8; BYTES]; 4]) -> __m512i {
    let bytes: &[u8; 64] = blocks.as_flattened().first_chunk().expect("four blocks have more");
    // SAFETY: the reference guarantees sixty-four readable bytes.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// Word `at` of each block of four rows, where blocks have so many words, as floats: four rows of the first block, then of
/// the second.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn halves_of_four([a, b, c, d]: [__m512i; 4], at: i16, block: i16) -> __m512 {
    let (first, second, third, fourth) = (at, at + block, at + 2 * block, at + 3 * block);
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
