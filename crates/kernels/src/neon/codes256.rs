//! Formats with blocks of 256 that `block256` does not name: four weight rows at a time, sixteen codes to a register.

use std::arch::aarch64::*;

use super::lanes::{Floats4, dot, four_halves, integer_sums4, load, load_words, read_ahead, store4, zero4};
use super::unpack256::{Registers, codes};
use crate::Dtype;
use crate::activations::{Int8Block256, Rows};
use crate::codes::with_format256;
use crate::ops::{Multiply, WeightRows};
use crate::pool::TileMut;
use crate::vector::field;
use crate::vector::four_rows::four_row_loops;

/// What a block of four rows has beside codes and their scales.
struct Head<const MINIMA: usize> {
    /// The scales of the scales.
    scales: Floats4,
    minima: Option<Minima<MINIMA>>,
}

/// Integer minima of four rows.
struct Minima<const N: usize> {
    scales: Floats4,
    rows: [[i16; N]; 4],
}

/// One block of one row.
struct Row<const SCALES: usize> {
    codes: [int8x16_t; 16],
    scales: [i16; SCALES],
}

four_row_loops!("neon,dotprod", int32x4_t, vdupq_n_s32(0));

/// Σ scale × code × x as four integers.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn products<const SCALES: usize>(row: &Row<SCALES>, x: &Int8Block256) -> int32x4_t {
    let (values, shared) = (x.values.as_chunks::<16>().0, 16 / SCALES);
    let mut total = vdupq_n_s32(0);
    for (group, &scale) in row.scales.iter().enumerate() {
        let mut sum = vdupq_n_s32(0);
        for at in shared * group..shared * (group + 1) {
            sum = dot(sum, row.codes[at], load(&values[at]));
        }
        total = vmlaq_n_s32(total, sum, i32::from(scale));
    }
    total
}

/// Adds the products of four rows and a block of x.
#[inline]
#[target_feature(enable = "neon")]
fn add<const N: usize>(sums: Floats4, head: &Head<N>, products: [int32x4_t; 4], x: &Int8Block256) -> Floats4 {
    let totals = vcvtq_f32_s32(integer_sums4(products));
    let sums = vfmaq_f32(sums, vmulq_n_f32(head.scales, x.scale), totals);
    let Some(minima) = &head.minima else { return sums };
    let part = |row: usize| offset(&minima.rows[row], x);
    let offsets = vcvtq_f32_s32(integer_sums4([part(0), part(1), part(2), part(3)]));
    vfmsq_f32(sums, vmulq_n_f32(minima.scales, x.scale), offsets)
}

/// Σ minimum × x as four integers, where eight minima or sixteen share a block.
#[inline]
#[target_feature(enable = "neon")]
fn offset<const N: usize>(minima: &[i16; N], x: &Int8Block256) -> int32x4_t {
    let sums: &[i16] = if N == x.wide_sums.len() { &x.wide_sums } else { &x.sums };
    let mut total = vdupq_n_s32(0);
    for (minima, sums) in minima.as_chunks().0.iter().zip(sums.as_chunks().0) {
        let (minima, sums) = (load_words(minima), load_words(sums));
        total = vmlal_s16(total, vget_low_s16(minima), vget_low_s16(sums));
        total = vmlal_high_s16(total, minima, sums);
    }
    total
}

/// The kernel of a format.
pub(super) fn kernel(dtype: Dtype) -> Multiply<Int8Block256> {
    with_format256!(dtype, multiply_codes)
}

#[target_feature(enable = "neon,dotprod")]
fn multiply_codes<const BYTES: usize, F: Registers<BYTES>>(
    weights: WeightRows<'_>,
    x: Rows<'_, Int8Block256>,
    out: &mut TileMut<'_>,
) {
    let head = |blocks: [&[u8; BYTES]; 4]| Head {
        scales: vmulq_n_f32(four_halves(blocks.map(|block| F::scale_bits(block).to_le_bytes()).each_ref()), F::FACTOR),
        minima: F::MINIMUM_SCALE.map(|at| Minima {
            scales: four_halves(blocks.map(|block| field(block, at))),
            rows: blocks.map(|block| F::minima(block)),
        }),
    };
    let row = |block: &_, _: &Head<16>, _| Row { codes: codes::<BYTES, F>(block), scales: F::scales(block) };
    let products = |row: &Row<16>, x: &_| products(row, x);
    multiply(weights, x, out, (head, row, products, |sums, head: &_, products, x: &_| add(sums, head, products, x)));
}
