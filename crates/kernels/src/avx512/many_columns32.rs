//! Formats with runs of 32 times many columns: 32 rows at a time, whose quants are unpacked once for all columns.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use super::runs32::{Head, Q40, Q80, ROWS, Runs, SixteenRows, deficit, head, nibbles};
use super::words::{Floats, Words, load_halves, load_word, splat, splat_bytes, splat_float, store};
use crate::activations::{Int8Block32, Rows};
use crate::blocks::{int4_group128, q4_0, q8_0};
use crate::codes::Int4Group128;
use crate::layout::{GROUP_HALF, GROUP_WORD};
use crate::ops::{InterleavedRows, WeightRows};
use crate::pool::TileMut;
use crate::vector::{MANY, chunk};

/// Groups of sixteen rows that are multiplied together: what is broadcast from memory then serves two products.
const GROUPS: usize = 2;
/// Runs that are multiplied with all columns while they are in the nearest cache.
const SLAB: usize = 8;
/// Columns that are multiplied together, as many as there are registers for.
const TOGETHER: usize = 6;

/// A run of a unit of rows, a lane for each.
#[derive(Clone, Copy)]
struct Run {
    /// Four quants to a lane.
    quants: [[Words; GROUPS]; 8],
    heads: [Head; GROUPS],
}

/// Weight rows that can be unpacked, sixteen at a time.
trait Source {
    /// What was added to quants.
    const OFFSET: i32;
    const OWN_ZERO: bool = false;
    const HAS_MINIMUM: bool = false;

    /// How many rows.
    fn rows(&self) -> usize;

    /// Where the group begins that holds row `first`, or the last rows.
    fn place(&self, first: usize) -> usize;

    /// Unpacks the runs from `start` on of a group.
    ///
    /// # Safety
    /// The CPU must have AVX-512 F and BW, AVX2 and F16C.
    unsafe fn unpack(&self, place: usize, start: usize, runs: &mut [Run], group: usize);
}

/// Rows that lie one after the other, at least [`ROWS`].
struct Neighbours<'a, const BYTES: usize, F> {
    rows: WeightRows<'a>,
    format: PhantomData<F>,
}

impl<const BYTES: usize, F: Runs<BYTES>> Source for Neighbours<'_, BYTES, F> {
    const OFFSET: i32 = F::OFFSET;
    const OWN_ZERO: bool = F::OWN_ZERO;
    const HAS_MINIMUM: bool = F::HAS_MINIMUM;

    fn rows(&self) -> usize {
        self.rows.count()
    }

    /// A last short group begins earlier, and computes some rows again.
    fn place(&self, first: usize) -> usize {
        first.min(self.rows.count() - ROWS)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx2,f16c")]
    unsafe fn unpack(&self, place: usize, start: usize, runs: &mut [Run], group: usize) {
        const { assert!(SLAB.is_multiple_of(F::RUNS), "whole blocks") };
        let rows = SixteenRows { bytes: self.rows.rows_from(place, ROWS), row_bytes: self.rows.row_bytes };
        for (block, runs) in (start / F::RUNS..).zip(runs.chunks_mut(F::RUNS)) {
            let at = block * BYTES;
            rows.ask_for(GROUPS * ROWS, at, BYTES);
            let head = head::<BYTES, F>(&rows, at);
            for (run, out) in runs.iter_mut().enumerate() {
                // SAFETY: this function is compiled for AVX-512 F and BW.
                let quants = unsafe { F::quants(&rows, at, run) };
                for (out, quants) in out.quants.iter_mut().zip(quants) {
                    out[group] = quants;
                }
                out.heads[group] = head;
            }
        }
    }
}

/// Interleaved rows of blocks of `W` words.
struct Interleaved<'a, const W: usize, F> {
    rows: InterleavedRows<'a>,
    width: usize,
    blocks: usize,
    format: PhantomData<F>,
}

/// A format whose rows can be interleaved.
trait InterleavedRuns<const W: usize> {
    /// Runs in a block, which has as many times `W` words.
    const RUNS: usize;
    const OFFSET: i32;

    /// The quants of a run.
    ///
    /// # Safety
    /// The CPU must have AVX-512 F.
    unsafe fn quants(words: [Words; W]) -> [Words; 8];
}

impl InterleavedRuns<8> for Q80 {
    const RUNS: usize = 1;
    const OFFSET: i32 = <Q80 as Runs<{ q8_0::BYTES }>>::OFFSET;

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn quants(words: [Words; 8]) -> [Words; 8] {
        let mut quants = words;
        for quants in &mut quants {
            *quants = _mm512_xor_si512(*quants, splat(0x8080_8080_u32 as i32));
        }
        quants
    }
}

impl InterleavedRuns<4> for Q40 {
    const RUNS: usize = 1;
    const OFFSET: i32 = q4_0::OFFSET;

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn quants(words: [Words; 4]) -> [Words; 8] {
        nibbles(words)
    }
}

impl InterleavedRuns<4> for Int4Group128 {
    const RUNS: usize = 4;
    const OFFSET: i32 = int4_group128::OFFSET;

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn quants(words: [Words; 4]) -> [Words; 8] {
        nibbles(words)
    }
}

impl<const W: usize, F: InterleavedRuns<W>> Source for Interleaved<'_, W, F> {
    const OFFSET: i32 = F::OFFSET;

    fn rows(&self) -> usize {
        self.width
    }

    fn place(&self, first: usize) -> usize {
        first.min((self.rows.count() - 1) * ROWS)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx2,f16c")]
    unsafe fn unpack(&self, place: usize, start: usize, runs: &mut [Run], group: usize) {
        let bytes = self.rows.group(place / ROWS);
        let (words, scales) = bytes.split_at(self.blocks * F::RUNS * W * GROUP_WORD);
        let words = words.as_chunks::<GROUP_WORD>().0.as_chunks::<W>().0;
        let scales = scales.as_chunks::<GROUP_HALF>().0;
        for (run, out) in (start..).zip(runs) {
            let mut own = [splat(0); W];
            own.iter_mut().zip(&words[run]).for_each(|(own, word)| *own = load_word(word));
            // SAFETY: this function is compiled for AVX-512 F.
            let quants = unsafe { F::quants(own) };
            for (out, quants) in out.quants.iter_mut().zip(quants) {
                out[group] = quants;
            }
            let scales = load_halves(&scales[run / F::RUNS]);
            out.heads[group] = Head { scales, minima: splat_float(0.0), zeros: splat(0) };
        }
    }
}

/// Multiplies all rows with all columns.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
fn multiply<S: Source>(source: &S, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    let head = Head { scales: splat_float(0.0), minima: splat_float(0.0), zeros: splat(0) };
    let mut slab = [Run { quants: [[splat(0); GROUPS]; 8], heads: [head; GROUPS] }; SLAB];
    let most = chunk(x.count(), MANY, TOGETHER);
    for start in (0..x.count()).step_by(most) {
        let x = x.part(start..x.count().min(start + most));
        for first in (0..source.rows()).step_by(GROUPS * ROWS) {
            let places = [source.place(first), source.place(first + ROWS)];
            let mut sums = [[splat_float(0.0); GROUPS]; MANY];
            let sums = &mut sums[..x.count().next_multiple_of(TOGETHER)];
            for at in (0..x.length()).step_by(SLAB) {
                let runs = &mut slab[..SLAB.min(x.length() - at)];
                for (group, place) in places.into_iter().enumerate() {
                    // SAFETY: this function is compiled for these features.
                    unsafe { source.unpack(place, at, runs, group) };
                }
                for (set, sums) in sums.as_chunks_mut().0.iter_mut().enumerate() {
                    add::<S>(runs, (x, TOGETHER * set, at), sums);
                }
            }
            for (column, sums) in sums[..x.count()].iter().enumerate() {
                for (&sums, place) in sums.iter().zip(places) {
                    put(sums, &mut out.row(start + column)[place..]);
                }
            }
        }
    }
}

/// Adds some runs times the columns of x from `first` on, of which the last repeats where there are fewer; those runs of
/// x begin at `at`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
fn add<S: Source>(
    runs: &[Run],
    (x, first, at): (Rows<'_, Int8Block32>, usize, usize),
    sums: &mut [[Floats; GROUPS]; TOGETHER],
) {
    // Written out: what is given to `std::array::from_fn` would be called.
    let column = |place: usize| &x.row((first + place).min(x.count() - 1))[at..][..runs.len()];
    let mut columns = [column(0); TOGETHER];
    for (place, runs_of_column) in columns.iter_mut().enumerate() {
        *runs_of_column = column(place);
    }
    let mut own = *sums;
    for (at, run) in runs.iter().enumerate() {
        let mut products = [[splat(0); GROUPS]; TOGETHER];
        for column in 0..TOGETHER {
            let sum = splat(columns[column][at].sum);
            for group in 0..GROUPS {
                let zeros = S::OWN_ZERO.then_some(run.heads[group].zeros);
                products[column][group] = deficit(S::OFFSET, zeros, sum);
            }
        }
        for (word, quants) in run.quants.iter().enumerate() {
            for column in 0..TOGETHER {
                let values = splat_bytes(columns[column][at].four(4 * word));
                for group in 0..GROUPS {
                    products[column][group] = _mm512_dpbusd_epi32(products[column][group], quants[group], values);
                }
            }
        }
        for column in 0..TOGETHER {
            let (x_scale, x_sum) = (splat_float(columns[column][at].scale), splat(columns[column][at].sum));
            for group in 0..GROUPS {
                let scale = _mm512_mul_ps(run.heads[group].scales, x_scale);
                let total = _mm512_cvtepi32_ps(products[column][group]);
                own[column][group] = _mm512_fmadd_ps(scale, total, own[column][group]);
                if S::HAS_MINIMUM {
                    let minimum = _mm512_mul_ps(run.heads[group].minima, x_scale);
                    own[column][group] = _mm512_fmadd_ps(minimum, _mm512_cvtepi32_ps(x_sum), own[column][group]);
                }
            }
        }
    }
    *sums = own;
}

/// Stores what there is room for.
#[inline]
#[target_feature(enable = "avx512f")]
fn put(sums: Floats, out: &mut [f32]) {
    match out.first_chunk_mut() {
        Some(out) => store(sums, out),
        None => {
            let mut all = [0.0; ROWS];
            store(sums, &mut all);
            out.copy_from_slice(&all[..out.len()]);
        }
    }
}

/// Multiplies at least [`ROWS`] neighbouring rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn multiply_rows<const BYTES: usize, F: Runs<BYTES>>(
    rows: WeightRows<'_>,
    x: Rows<'_, Int8Block32>,
    out: &mut TileMut<'_>,
) {
    multiply(&Neighbours::<BYTES, F> { rows, format: PhantomData }, x, out);
}

/// Multiplies interleaved rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
fn multiply_interleaved<const W: usize, F: InterleavedRuns<W>>(
    rows: InterleavedRows<'_>,
    x: Rows<'_, Int8Block32>,
    out: &mut TileMut<'_>,
) {
    let (width, blocks) = (out.width(), x.length() / F::RUNS);
    multiply(&Interleaved::<W, F> { rows, width, blocks, format: PhantomData }, x, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn many_q8_0(rows: InterleavedRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    multiply_interleaved::<8, Q80>(rows, x, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn many_q4_0(rows: InterleavedRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    multiply_interleaved::<4, Q40>(rows, x, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn many_int4(rows: InterleavedRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    multiply_interleaved::<4, Int4Group128>(rows, x, out);
}
