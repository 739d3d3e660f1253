//! Formats with runs of 32 times some columns: sixteen rows at a time, turned in registers so that a lane belongs to a row.

use std::arch::x86_64::*;

use super::words::{splat_bytes, store};
use crate::activations::{Int8Block32, Rows};
use crate::avx2::lanes::prefetch_from;
use crate::blocks::{int4_group128, q4_0, q4_1, q8_0};
use crate::ops::WeightRows;
use crate::pool::TileMut;

/// Rows that are multiplied together.
pub(super) const ROWS: usize = 16;
/// Columns up to which turning the rows for every eight of them costs less than keeping them turned.
pub(super) const MOST: usize = 24;

/// A format with runs of 32.
trait Runs {
    /// Bytes of a block, and how many runs it has.
    const BYTES: usize;
    const RUNS: usize = 1;
    /// What was added to quants.
    const OFFSET: i32;
    /// Whether a second half-precision number is added to every number of a block.
    const HAS_MINIMUM: bool = false;

    /// The quants of a run whose block begins at byte `at` of every row: four of them to a lane.
    ///
    /// # Safety
    /// The CPU must have AVX-512 F.
    unsafe fn quants(rows: &SixteenRows<'_>, at: usize, run: usize) -> [__m512i; 8];
}

struct Q80;
struct Q40;
struct Q41;
struct Int4;

impl Runs for Q80 {
    const BYTES: usize = q8_0::BYTES;
    // The multiply takes unsigned × signed numbers.
    const OFFSET: i32 = 128;

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn quants(rows: &SixteenRows<'_>, at: usize, _run: usize) -> [__m512i; 8] {
        let offset = _mm512_set1_epi32(0x8080_8080_u32 as i32);
        let mut quants = [offset; 8];
        let (first, second) = quants.split_at_mut(4);
        first.copy_from_slice(&rows.four_words(at + q8_0::QUANTS));
        second.copy_from_slice(&rows.four_words(at + q8_0::QUANTS + 16));
        for quants in &mut quants {
            *quants = _mm512_xor_si512(*quants, offset);
        }
        quants
    }
}

impl Runs for Q40 {
    const BYTES: usize = q4_0::BYTES;
    const OFFSET: i32 = q4_0::OFFSET;

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn quants(rows: &SixteenRows<'_>, at: usize, _run: usize) -> [__m512i; 8] {
        nibbles(rows.four_words(at + q4_0::QUANTS))
    }
}

impl Runs for Q41 {
    const BYTES: usize = q4_1::BYTES;
    const OFFSET: i32 = 0;
    const HAS_MINIMUM: bool = true;

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn quants(rows: &SixteenRows<'_>, at: usize, _run: usize) -> [__m512i; 8] {
        nibbles(rows.four_words(at + q4_1::QUANTS))
    }
}

impl Runs for Int4 {
    const BYTES: usize = int4_group128::BYTES;
    const RUNS: usize = 4;
    const OFFSET: i32 = int4_group128::OFFSET;

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn quants(rows: &SixteenRows<'_>, at: usize, run: usize) -> [__m512i; 8] {
        nibbles(rows.four_words(at + int4_group128::QUANTS + 16 * run))
    }
}

/// The lower nibbles of four words, and then the upper.
#[inline]
#[target_feature(enable = "avx512f")]
fn nibbles([a, b, c, d]: [__m512i; 4]) -> [__m512i; 8] {
    let low = |words| _mm512_and_si512(words, _mm512_set1_epi8(15));
    let high = |words| low(_mm512_srli_epi32::<4>(words));
    [low(a), low(b), low(c), low(d), high(a), high(b), high(c), high(d)]
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply_q8_0(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    multiply::<Q80>(weights, x, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply_q4_0(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    multiply::<Q40>(weights, x, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply_q4_1(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    multiply::<Q41>(weights, x, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply_int4(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    multiply::<Int4>(weights, x, out);
}

/// Multiplies at least [`ROWS`] neighbouring rows with all columns.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
fn multiply<F: Runs>(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    for first in (0..weights.count()).step_by(ROWS) {
        // A last short unit begins earlier, and computes some rows again.
        let first = first.min(weights.count() - ROWS);
        let rows = SixteenRows { bytes: weights.rows_from(first, ROWS), row_bytes: weights.row_bytes };
        let mut done = 0;
        while done < x.count() {
            done += match x.count() - done {
                ..=4 => multiply_columns::<4, F>(&rows, x, done, (out, first)),
                5 | 6 => multiply_columns::<6, F>(&rows, x, done, (out, first)),
                _ => multiply_columns::<8, F>(&rows, x, done, (out, first)),
            };
        }
    }
}

/// Multiplies rows with `N` columns from `start` on; gives how many they are.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
fn multiply_columns<const N: usize, F: Runs>(
    rows: &SixteenRows<'_>,
    x: Rows<'_, Int8Block32>,
    start: usize,
    (out, first): (&mut TileMut<'_>, usize),
) -> usize {
    let length = x.length();
    // Where there are fewer columns, the last repeats.
    let columns: [_; N] = std::array::from_fn(|column| &x.row((start + column).min(x.count() - 1))[..length]);
    let mut sums = [_mm512_setzero_ps(); N];
    for block in 0..length / F::RUNS {
        let at = block * F::BYTES;
        if start == 0 {
            rows.ask_for_next(at, F::BYTES);
        }
        let (scales, minima) = rows.halves(at);
        for run in 0..F::RUNS {
            // SAFETY: this function is compiled for more than AVX-512 F.
            let quants = unsafe { F::quants(rows, at, run) };
            for column in 0..N {
                let x = &columns[column][F::RUNS * block + run];
                let mut low = _mm512_set1_epi32(F::OFFSET.wrapping_mul(x.sum).wrapping_neg());
                let mut high = _mm512_setzero_si512();
                for word in 0..4 {
                    low = _mm512_dpbusd_epi32(low, quants[word], splat_bytes(x.four(4 * word)));
                    high = _mm512_dpbusd_epi32(high, quants[word + 4], splat_bytes(x.four(4 * word + 16)));
                }
                let (total, x_scale) = (_mm512_cvtepi32_ps(_mm512_add_epi32(low, high)), _mm512_set1_ps(x.scale));
                sums[column] = _mm512_fmadd_ps(_mm512_mul_ps(scales, x_scale), total, sums[column]);
                if F::HAS_MINIMUM {
                    let x_sum = _mm512_set1_ps(x.sum as f32);
                    sums[column] = _mm512_fmadd_ps(_mm512_mul_ps(minima, x_scale), x_sum, sums[column]);
                }
            }
        }
    }
    for (column, sums) in sums.into_iter().enumerate().take(x.count() - start) {
        store(sums, out.row(start + column)[first..].first_chunk_mut().expect("a unit lies inside the tile"));
    }
    N
}

/// Sixteen neighbouring rows.
struct SixteenRows<'a> {
    bytes: &'a [u8],
    row_bytes: usize,
}

impl SixteenRows<'_> {
    /// Four words from byte `at` of every row on: word j of every row in register j.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn four_words(&self, at: usize) -> [__m512i; 4] {
        assert!(self.bytes.len() == ROWS * self.row_bytes && at + 16 <= self.row_bytes, "they lie in every row");
        // SAFETY: the assertion keeps sixteen bytes of each of the sixteen rows in reach.
        let [a, b, c, d] = unsafe {
            let start = self.bytes.as_ptr().add(at);
            let four = |row: usize| _mm_loadu_si128(start.add(row * self.row_bytes).cast());
            let every_fourth = |row: usize| {
                let two = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(four(row)), four(row + 4));
                let three = _mm512_inserti32x4::<2>(_mm512_castsi256_si512(two), four(row + 8));
                _mm512_inserti32x4::<3>(three, four(row + 12))
            };
            [every_fourth(0), every_fourth(1), every_fourth(2), every_fourth(3)]
        };
        let (low, low_too) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
        let (high, high_too) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
        [
            _mm512_unpacklo_epi64(low, low_too),
            _mm512_unpackhi_epi64(low, low_too),
            _mm512_unpacklo_epi64(high, high_too),
            _mm512_unpackhi_epi64(high, high_too),
        ]
    }

    /// The first and the second of the half-precision numbers that begin at byte `at` of every row.
    #[inline]
    #[target_feature(enable = "avx512f,avx2,f16c")]
    fn halves(&self, at: usize) -> (__m512, __m512) {
        assert!(self.bytes.len() == ROWS * self.row_bytes && at + 4 <= self.row_bytes, "they lie in every row");
        let offsets = _mm512_mullo_epi32(
            _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
            _mm512_set1_epi32(i32::try_from(self.row_bytes).expect("a row is far shorter")),
        );
        // SAFETY: the assertion keeps four bytes of each of the sixteen rows in reach.
        let pairs = unsafe { _mm512_i32gather_epi32::<1>(offsets, self.bytes.as_ptr().add(at).cast()) };
        let floats = |pairs| _mm512_cvtph_ps(_mm512_cvtepi32_epi16(pairs));
        (floats(pairs), floats(_mm512_srli_epi32::<16>(pairs)))
    }

    /// Asks for as much of the rows that come next as sixteen blocks of `bytes` at byte `at` are.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn ask_for_next(&self, at: usize, bytes: usize) {
        // Memory is faster when half of them are read beside the other half.
        for half in 0..2 {
            let soon = (ROWS + ROWS / 2 * half) * self.row_bytes + ROWS / 2 * at;
            prefetch_from(self.bytes, soon, ROWS / 2 * bytes);
        }
    }
}
