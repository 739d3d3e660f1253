//! Formats with blocks of 32: exact integer sums inside a block, one fused multiply-add per block.

use crate::activations::{Int8Block32, Rows};
use crate::blocks::{half_at, q4_0, q8_0};
use crate::multiply_add::{MultiplyAdd, Portable};
use crate::ops::WeightRows;
use crate::pool::TileMut;

fn multiply<const BYTES: usize>(
    weights: WeightRows<'_>,
    x: Rows<'_, Int8Block32>,
    out: &mut TileMut<'_>,
    integer_sum: impl Fn(&[u8; BYTES], &Int8Block32) -> i32,
) {
    for four in 0..weights.fours() {
        let rows = weights.four(four).map(|row| row.as_chunks::<BYTES>().0);
        for column in 0..x.count() {
            let sum = |blocks: &[[u8; BYTES]]| {
                blocks.iter().zip(x.row(column)).fold(0.0, |sum: f32, (block, x)| {
                    Portable::fused(half_at(block, 0) * x.scale, integer_sum(block, x) as f32, sum)
                })
            };
            out.put4(column, four, rows.map(sum));
        }
    }
}

pub(super) fn multiply_q8_0(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    multiply::<{ q8_0::BYTES }>(weights, x, out, |block, x| {
        let quants = &block[q8_0::QUANTS..];
        quants.iter().zip(&x.values).map(|(&quant, &x)| i32::from(quant as i8) * i32::from(x)).sum()
    });
}

pub(super) fn multiply_q4_0(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    multiply::<{ q4_0::BYTES }>(weights, x, out, |block, x| {
        let quants = &block[q4_0::QUANTS..];
        let (low, high) = x.values.split_at(16);
        let pairs = quants.iter().zip(low.iter().zip(high));
        let products = pairs.map(|(&quant, (&low, &high))| {
            i32::from(quant & 15) * i32::from(low) + i32::from(quant >> 4) * i32::from(high)
        });
        products.sum::<i32>() - q4_0::OFFSET * x.sum
    });
}
