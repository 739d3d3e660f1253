//! Q4_K, Q5_K and Q6_K: four weight rows at a time, one lane of all sums per row.

use std::arch::aarch64::*;
use std::sync::atomic::{Ordering, compiler_fence};

use super::interleaved256;
use super::lanes::{Floats4, dot, integer_sums4, load, read_ahead, store4, zero4};
use super::quants256::{Head, Q4K, Q5K, Q6K, Quants};
use crate::activations::{Int8Block256, Rows};
use crate::blocks::{q4_k, q5_k, q6_k};
use crate::ops::WeightRows;
use crate::pool::TileMut;
use crate::vector::LEAST_TURNED;

#[target_feature(enable = "neon,dotprod")]
pub(super) fn multiply_q4_k(weights: WeightRows<'_>, x: Rows<'_, Int8Block256>, out: &mut TileMut<'_>) {
    match x.count() {
        1 => multiply::<1, { q4_k::BYTES }, Q4K>(weights, x, out),
        ..LEAST_TURNED => multiply::<MOST, { q4_k::BYTES }, Q4K>(weights, x, out),
        _ => interleaved256::turned_q4_k(weights, x, out),
    }
}

#[target_feature(enable = "neon,dotprod")]
pub(super) fn multiply_q5_k(weights: WeightRows<'_>, x: Rows<'_, Int8Block256>, out: &mut TileMut<'_>) {
    match x.count() {
        1 => multiply::<1, { q5_k::BYTES }, Q5K>(weights, x, out),
        ..LEAST_TURNED => multiply::<MOST, { q5_k::BYTES }, Q5K>(weights, x, out),
        _ => interleaved256::turned_q5_k(weights, x, out),
    }
}

#[target_feature(enable = "neon,dotprod")]
pub(super) fn multiply_q6_k(weights: WeightRows<'_>, x: Rows<'_, Int8Block256>, out: &mut TileMut<'_>) {
    match x.count() {
        1 => multiply::<1, { q6_k::BYTES }, Q6K>(weights, x, out),
        ..LEAST_TURNED => multiply::<MOST, { q6_k::BYTES }, Q6K>(weights, x, out),
        _ => interleaved256::turned_q6_k(weights, x, out),
    }
}

/// Columns that share one unpacking of the weights, where there are several.
const MOST: usize = LEAST_TURNED - 1;

/// Multiplies weight rows with `C` columns; where there are fewer, the last repeats.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn multiply<const C: usize, const BYTES: usize, F: Quants<BYTES>>(
    weights: WeightRows<'_>,
    x: Rows<'_, Int8Block256>,
    out: &mut TileMut<'_>,
) {
    let length = x.length();
    let mut columns = [&x.row(0)[..length]; C];
    for (at, column) in columns.iter_mut().enumerate() {
        *column = &x.row(at.min(x.count() - 1))[..length];
    }
    for four in 0..weights.fours() {
        let [a, b, c, d] = weights.four(four).map(|row| &row.as_chunks::<BYTES>().0[..length]);
        let mut sums = [zero4(); C];
        for at in 0..length {
            let rows = [&a[at], &b[at], &c[at], &d[at]];
            read_ahead(weights.ahead, rows);
            let mut x = [&columns[0][at]; C];
            for (block, column) in x.iter_mut().zip(&columns) {
                *block = &column[at];
            }
            add::<C, BYTES, F>(&mut sums, rows, x);
        }
        for (column, sums) in sums.into_iter().enumerate().take(x.count()) {
            out.put4(column, four, store4(sums));
        }
    }
}

/// Adds the products of a block of four rows with blocks of `C` columns.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn add<const C: usize, const BYTES: usize, F: Quants<BYTES>>(
    sums: &mut [Floats4; C],
    rows: [&[u8; BYTES]; 4],
    x: [&Int8Block256; C],
) {
    // SAFETY: this function itself may only be called where the CPU has NEON.
    let head = unsafe { F::Head::new(rows) };
    let mut groups = [Groups::new(); C];
    // Written out, because the compiler keeps a loop, and its quants in memory. It also likes to load quarters together,
    // for which there are too few registers.
    add_quarter::<0, C, BYTES, F>(&mut groups, &head, rows, x);
    compiler_fence(Ordering::SeqCst);
    add_quarter::<1, C, BYTES, F>(&mut groups, &head, rows, x);
    compiler_fence(Ordering::SeqCst);
    add_quarter::<2, C, BYTES, F>(&mut groups, &head, rows, x);
    compiler_fence(Ordering::SeqCst);
    add_quarter::<3, C, BYTES, F>(&mut groups, &head, rows, x);
    for column in 0..C {
        // SAFETY: this function itself may only be called where the CPU has NEON with dot products.
        sums[column] = unsafe { head.add(sums[column], groups[column].total, x[column]) };
    }
}

/// Adds a quarter of the products.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn add_quarter<const QUARTER: usize, const C: usize, const BYTES: usize, F: Quants<BYTES>>(
    groups: &mut [Groups; C],
    head: &F::Head,
    [a, b, c, d]: [&[u8; BYTES]; 4],
    x: [&Int8Block256; C],
) {
    // SAFETY: this function itself may only be called where the CPU has NEON.
    let quants = |row| unsafe { F::quants::<QUARTER>(row) };
    let [a, b, c, d] = [quants(a), quants(b), quants(c), quants(d)];
    macro_rules! add_sixteen {
        ($at:literal) => {
            let sixteen = F::sixteen(QUARTER, $at);
            for column in 0..C {
                groups[column].add([a[$at], b[$at], c[$at], d[$at]], &x[column].values.as_chunks().0[sixteen]);
            }
            if ($at + 1) % F::SIXTEENS == 0 {
                // SAFETY: as above.
                let scales = unsafe { head.scales(sixteen / F::SIXTEENS) };
                for column in 0..C {
                    groups[column].end(scales);
                }
            }
        };
    }
    add_sixteen!(0);
    add_sixteen!(1);
    add_sixteen!(2);
    add_sixteen!(3);
}

/// The integer sums of a block of four rows.
#[derive(Clone, Copy)]
struct Groups {
    /// Sums of the rows' products that run on from group to group: starting each with zeros takes more instructions than
    /// subtracting what was there before.
    running: [int32x4_t; 4],
    /// What they were when the last group ended, one lane per row.
    before: int32x4_t,
    /// Σ scale × sum of the group, one lane per row.
    total: int32x4_t,
}

impl Groups {
    #[inline]
    #[target_feature(enable = "neon")]
    fn new() -> Groups {
        let zero = vdupq_n_s32(0);
        Groups { running: [zero; 4], before: zero, total: zero }
    }

    /// Adds the products of sixteen quants of each row.
    #[inline]
    #[target_feature(enable = "neon,dotprod")]
    fn add(&mut self, quants: [int8x16_t; 4], x: &[i8; 16]) {
        let x = load(x);
        for (sums, quants) in self.running.iter_mut().zip(quants) {
            *sums = dot(*sums, quants, x);
        }
    }

    /// Ends a group, whose scales these are.
    #[inline]
    #[target_feature(enable = "neon")]
    fn end(&mut self, scales: int32x4_t) {
        let sums = integer_sums4(self.running);
        self.total = vmlaq_s32(self.total, vsubq_s32(sums, self.before), scales);
        self.before = sums;
    }
}
