//! The two common forms of integer formats: decoding and exact products.

use crate::Dtype;
use crate::activations::{Int8Block32, Int8Block256, Rows};
use crate::blocks::half_at;
use crate::codes::{Format32, Format256, codes, scale, with_format32, with_format256, zero};
use crate::multiply_add::{MultiplyAdd, Portable};
use crate::ops::{Multiply, WeightRows};
use crate::pool::TileMut;
use crate::runs::STREAMS;

/// Decodes whole blocks of a format with runs of 32.
fn decode32<const BYTES: usize, F: Format32<BYTES>>(bytes: &[u8], out: &mut [f32]) {
    for (block, numbers) in bytes.as_chunks::<BYTES>().0.iter().zip(out.chunks_exact_mut(32 * F::RUNS)) {
        let (scale, zero) = (scale::<BYTES, F>(block), zero::<BYTES, F>(block));
        for (run, numbers) in numbers.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            for (number, code) in numbers.iter_mut().zip(codes::<BYTES, F>(block, run)) {
                *number = scale * (i32::from(code) - zero) as f32;
                if let Some(at) = F::MINIMUM {
                    *number += half_at(block, at);
                }
            }
        }
    }
}

/// Decodes whole blocks of 256.
fn decode256<const BYTES: usize, F: Format256<BYTES>>(bytes: &[u8], out: &mut [f32]) {
    for (block, numbers) in bytes.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<256>().0) {
        let (codes, scales, minima) = (F::codes(block), F::scales(block), F::minima(block));
        let (scale, minimum) = (F::scale(block), F::minimum(block));
        for (group, numbers) in numbers.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let step = scale * f32::from(scales[group]);
            for (number, &code) in numbers.iter_mut().zip(&codes[16 * group..]) {
                *number = step * f32::from(code);
                if let Some(minimum) = minimum {
                    *number -= minimum * f32::from(minima[group]);
                }
            }
        }
    }
}

/// One fused multiply-add per 32 numbers, and a second where there is a minimum.
pub(super) fn multiply32<const BYTES: usize, F: Format32<BYTES>>(
    weights: WeightRows<'_>,
    x: Rows<'_, Int8Block32>,
    out: &mut TileMut<'_>,
) {
    for four in 0..weights.fours() {
        let rows = weights.four(four).map(|row| row.as_chunks::<BYTES>().0);
        for column in 0..x.count() {
            out.put4(column, four, rows.map(|blocks| row_sum32::<BYTES, F>(blocks, x.row(column))));
        }
    }
}

fn row_sum32<const BYTES: usize, F: Format32<BYTES>>(blocks: &[[u8; BYTES]], x: &[Int8Block32]) -> f32 {
    let mut sum = 0.0_f32;
    for (block, x) in blocks.iter().zip(x.chunks_exact(F::RUNS)) {
        let (scale, zero) = (scale::<BYTES, F>(block), zero::<BYTES, F>(block));
        for (run, x) in x.iter().enumerate() {
            let products = integer_dot(&codes::<BYTES, F>(block, run), &x.values) - zero * x.sum;
            sum = Portable::fused(scale * x.scale, products as f32, sum);
            if let Some(at) = F::MINIMUM {
                sum = Portable::fused(half_at(block, at) * x.scale, x.sum as f32, sum);
            }
        }
    }
    sum
}

/// One fused multiply-add per block, and a second where there are minima.
fn multiply256<const BYTES: usize, F: Format256<BYTES>>(
    weights: WeightRows<'_>,
    x: Rows<'_, Int8Block256>,
    out: &mut TileMut<'_>,
) {
    // What a block holds, unpacked once for all columns.
    let mut sums = vec![[0.0_f32; STREAMS]; x.count()];
    for four in 0..weights.fours() {
        sums.fill([0.0; STREAMS]);
        for (row, bytes) in weights.four(four).into_iter().enumerate() {
            for (at, block) in bytes.as_chunks::<BYTES>().0.iter().enumerate() {
                let (codes, scales, minima) = (F::codes(block), F::scales(block), F::minima(block));
                let (scale, minimum) = (F::scale(block), F::minimum(block));
                for (column, sums) in sums.iter_mut().enumerate() {
                    let (x, sum) = (&x.row(column)[at], &mut sums[row]);
                    let (mut products, mut offsets) = (0, 0);
                    for group in 0..16 {
                        let part = 16 * group..16 * (group + 1);
                        let dot = integer_dot(&codes[part.clone()], &x.values[part]);
                        products += i32::from(scales[group]) * dot;
                        offsets += i32::from(minima[group]) * i32::from(x.sums[group]);
                    }
                    *sum = Portable::fused(scale * x.scale, products as f32, *sum);
                    if let Some(minimum) = minimum {
                        *sum = Portable::fused(-(minimum * x.scale), offsets as f32, *sum);
                    }
                }
            }
        }
        sums.iter().enumerate().for_each(|(column, sums)| out.put4(column, four, *sums));
    }
}

fn integer_dot(codes: &[i8], x: &[i8]) -> i32 {
    codes.iter().zip(x).map(|(&code, &x)| i32::from(code) * i32::from(x)).sum()
}

/// The kernel of a format with runs of 32.
pub(crate) fn kernel32(dtype: Dtype) -> Multiply<Int8Block32> {
    with_format32!(dtype, multiply32)
}

/// The kernel of a format with blocks of 256.
pub(crate) fn kernel256(dtype: Dtype) -> Multiply<Int8Block256> {
    with_format256!(dtype, multiply256)
}

/// The decoder of a format with runs of 32.
pub(super) fn decoder32(dtype: Dtype) -> fn(&[u8], &mut [f32]) {
    with_format32!(dtype, decode32)
}

/// The decoder of a format with blocks of 256.
pub(super) fn decoder256(dtype: Dtype) -> fn(&[u8], &mut [f32]) {
    with_format256!(dtype, decode256)
}
