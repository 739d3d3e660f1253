//! Formats with blocks of 256: exact integer sums inside a block, one or two fused multiply-adds per block.

use crate::activations::{Int8Block256, Rows};
use crate::blocks::{half_at, q4_k, q5_k, q6_k, unpack_scales};
use crate::multiply_add::{MultiplyAdd, Portable};
use crate::ops::WeightRows;
use crate::pool::TileMut;

/// Folds `block` over the blocks of every row and column: it adds one block's share to the sum.
fn multiply<const BYTES: usize>(
    weights: WeightRows<'_>,
    x: Rows<'_, Int8Block256>,
    out: &mut TileMut<'_>,
    block: impl Fn(f32, &[u8; BYTES], &Int8Block256) -> f32,
) {
    for four in 0..weights.fours() {
        let rows = weights.four(four).map(|row| row.as_chunks::<BYTES>().0);
        for column in 0..x.count() {
            let sum = |blocks: &[[u8; BYTES]]| {
                blocks.iter().zip(x.row(column)).fold(0.0, |sum, (weights, x)| block(sum, weights, x))
            };
            out.put4(column, four, rows.map(sum));
        }
    }
}

/// Adds a block whose value is d × scale × quant − dmin × minimum, with scale and minimum per 32 quants.
fn add_with_minima(sum: f32, header: &[u8], quants: &[u8; 256], x: &Int8Block256) -> f32 {
    let (scale, minimum) = (half_at(header, 0), half_at(header, q4_k::MINIMUM_SCALE));
    let packed = header[q4_k::SCALES..].first_chunk().expect("a header has twelve bytes of scales");
    let (scales, minima) = unpack_scales(packed);
    let mut products = 0;
    let mut offsets = 0;
    for group in 0..8 {
        let part = 32 * group..32 * (group + 1);
        products += i32::from(scales[group]) * integer_dot(&quants[part.clone()], &x.values[part]);
        offsets += i32::from(minima[group]) * (i32::from(x.sums[2 * group]) + i32::from(x.sums[2 * group + 1]));
    }
    let sum = Portable::fused(scale * x.scale, products as f32, sum);
    Portable::fused(-(minimum * x.scale), offsets as f32, sum)
}

fn integer_dot(quants: &[u8], x: &[i8]) -> i32 {
    quants.iter().zip(x).map(|(&quant, &x)| i32::from(quant) * i32::from(x)).sum()
}

pub(super) fn multiply_q4_k(weights: WeightRows<'_>, x: Rows<'_, Int8Block256>, out: &mut TileMut<'_>) {
    multiply::<{ q4_k::BYTES }>(weights, x, out, |sum, block, x| {
        let nibbles = &block[q4_k::QUANTS..];
        let quants = std::array::from_fn(|at| (nibbles[at / 64 * 32 + at % 32] >> (at / 32 % 2 * 4)) & 15);
        add_with_minima(sum, block, &quants, x)
    });
}

pub(super) fn multiply_q5_k(weights: WeightRows<'_>, x: Rows<'_, Int8Block256>, out: &mut TileMut<'_>) {
    multiply::<{ q5_k::BYTES }>(weights, x, out, |sum, block, x| {
        let (high, nibbles) = (&block[q5_k::HIGH_BITS..], &block[q5_k::QUANTS..]);
        let quants = std::array::from_fn(|at| {
            let low = (nibbles[at / 64 * 32 + at % 32] >> (at / 32 % 2 * 4)) & 15;
            low | (((high[at % 32] >> (at / 32)) & 1) << 4)
        });
        add_with_minima(sum, block, &quants, x)
    });
}

pub(super) fn multiply_q6_k(weights: WeightRows<'_>, x: Rows<'_, Int8Block256>, out: &mut TileMut<'_>) {
    multiply::<{ q6_k::BYTES }>(weights, x, out, |sum, block, x| {
        let (high, scales) = (&block[q6_k::HIGH_BITS..], &block[q6_k::SCALES..]);
        let quants: [u8; 256] = std::array::from_fn(|at| {
            let (half, quarter) = (at / 128, at / 32 % 4);
            let low = (block[64 * half + 32 * (quarter % 2) + at % 32] >> (4 * (quarter / 2))) & 15;
            low | (((high[32 * half + at % 32] >> (2 * quarter)) & 3) << 4)
        });
        let mut products = 0;
        for group in 0..16 {
            let part = 16 * group..16 * (group + 1);
            let raw = integer_dot(&quants[part.clone()], &x.values[part]);
            products += i32::from(scales[group] as i8) * (raw - q6_k::OFFSET * i32::from(x.sums[group]));
        }
        Portable::fused(half_at(block, q6_k::SCALE) * x.scale, products as f32, sum)
    });
}
