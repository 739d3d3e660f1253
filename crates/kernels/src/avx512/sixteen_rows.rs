//! Formats with runs of 32 times some columns: sixteen rows at a time, turned again for every few columns.

use std::arch::x86_64::*;

use super::runs32::{ROWS, Runs, SixteenRows, deficit, head};
use super::words::{splat, splat_bytes, splat_float, store};
use crate::activations::{Int8Block32, Rows};
use crate::ops::WeightRows;
use crate::pool::TileMut;

/// Columns up to which turning the rows for every eight of them costs less than keeping them turned.
pub(super) const MOST: usize = 24;

/// Multiplies at least [`ROWS`] neighbouring rows with all columns.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply<const BYTES: usize, F: Runs<BYTES>>(
    weights: WeightRows<'_>,
    x: Rows<'_, Int8Block32>,
    out: &mut TileMut<'_>,
) {
    for first in (0..weights.count()).step_by(ROWS) {
        // A last short unit begins earlier, and computes some rows again.
        let first = first.min(weights.count() - ROWS);
        let rows = SixteenRows { bytes: weights.rows_from(first, ROWS), row_bytes: weights.row_bytes };
        let mut done = 0;
        while done < x.count() {
            done += match x.count() - done {
                ..=4 => multiply_columns::<4, BYTES, F>(&rows, x, done, (out, first)),
                5 | 6 => multiply_columns::<6, BYTES, F>(&rows, x, done, (out, first)),
                _ => multiply_columns::<8, BYTES, F>(&rows, x, done, (out, first)),
            };
        }
    }
}

/// Multiplies rows with `N` columns from `start` on; gives how many they are.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
fn multiply_columns<const N: usize, const BYTES: usize, F: Runs<BYTES>>(
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
        let at = block * BYTES;
        if start == 0 {
            rows.ask_for_next(at, BYTES);
        }
        let head = head::<BYTES, F>(rows, at);
        let zeros = F::OWN_ZERO.then_some(head.zeros);
        for run in 0..F::RUNS {
            // SAFETY: this function is compiled for AVX-512 F and BW.
            let quants = unsafe { F::quants(rows, at, run) };
            for column in 0..N {
                let x = &columns[column][F::RUNS * block + run];
                let mut low = deficit(F::OFFSET, zeros, splat(x.sum));
                let mut high = _mm512_setzero_si512();
                for word in 0..4 {
                    low = _mm512_dpbusd_epi32(low, quants[word], splat_bytes(x.four(4 * word)));
                    high = _mm512_dpbusd_epi32(high, quants[word + 4], splat_bytes(x.four(4 * word + 16)));
                }
                let (total, x_scale) = (_mm512_cvtepi32_ps(_mm512_add_epi32(low, high)), splat_float(x.scale));
                sums[column] = _mm512_fmadd_ps(_mm512_mul_ps(head.scales, x_scale), total, sums[column]);
                if F::HAS_MINIMUM {
                    let x_sum = splat_float(x.sum as f32);
                    sums[column] = _mm512_fmadd_ps(_mm512_mul_ps(head.minima, x_scale), x_sum, sums[column]);
                }
            }
        }
    }
    for (column, sums) in sums.into_iter().enumerate().take(x.count() - start) {
        store(sums, out.row(start + column)[first..].first_chunk_mut().expect("a unit lies inside the tile"));
    }
    N
}
