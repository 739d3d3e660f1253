//! Formats with runs of 32: four weight rows at a time, one lane of the float sums per row.

use std::arch::aarch64::*;

use super::interleaved32;
use super::lanes::{
    Floats4, bits_to_bytes, dot, four_halves, integer_sums4, load, load_bytes, load4, read_ahead, store4, zero4,
};
use crate::Dtype;
use crate::activations::{Int8Block32, Rows};
use crate::blocks::{q4_0, q8_0};
use crate::codes::{self, Format32, Scale, with_format32};
use crate::ops::{Multiply, WeightRows};
use crate::pool::TileMut;
use crate::reading::ReadAhead;
use crate::vector::{LEAST_TURNED, field, pair};

/// Columns that share one unpacking of the weights.
const COLUMNS: usize = 64;

/// The codes of one run.
type Codes = [int8x16_t; 2];

/// What a block of four rows has beside its codes.
struct Head {
    scales: Floats4,
    /// The codes that stand for zero.
    zeros: int32x4_t,
    minima: Option<Floats4>,
}

/// A format of single runs behind an f16 scale, without zero points.
struct Plain;

impl<const BYTES: usize> Format32<BYTES> for Plain {
    const QUANTS: usize = 2;
}

#[target_feature(enable = "neon,dotprod")]
pub(super) fn multiply_q8_0(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    if x.count() >= LEAST_TURNED {
        return interleaved32::turned_q8_0(weights, x, out);
    }
    multiply::<{ q8_0::BYTES }, Plain>(weights, x, out, |block, _| {
        let bytes = |at| vreinterpretq_s8_u8(load_bytes(field(block, q8_0::QUANTS + at)));
        [bytes(0), bytes(16)]
    });
}

#[target_feature(enable = "neon,dotprod")]
pub(super) fn multiply_q4_0(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    if x.count() >= LEAST_TURNED {
        return interleaved32::turned_q4_0(weights, x, out);
    }
    multiply::<{ q4_0::BYTES }, Plain>(weights, x, out, |block, run| {
        let [low, high] = codes::<_, Plain>(block, run);
        let offset = vdupq_n_s8(q4_0::OFFSET as i8);
        [vsubq_s8(low, offset), vsubq_s8(high, offset)]
    });
}

/// The kernel of any other format.
pub(super) fn kernel(dtype: Dtype) -> Multiply<Int8Block32> {
    with_format32!(dtype, multiply_codes)
}

#[target_feature(enable = "neon,dotprod")]
fn multiply_codes<const BYTES: usize, F: Format32<BYTES>>(
    weights: WeightRows<'_>,
    x: Rows<'_, Int8Block32>,
    out: &mut TileMut<'_>,
) {
    multiply::<BYTES, F>(weights, x, out, |block, run| codes::<BYTES, F>(block, run));
}

/// Multiplies weight rows, four at a time; `unpack` gives the codes of a run.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn multiply<const BYTES: usize, F: Format32<BYTES>>(
    weights: WeightRows<'_>,
    x: Rows<'_, Int8Block32>,
    out: &mut TileMut<'_>,
    unpack: impl Fn(&[u8; BYTES], usize) -> Codes,
) {
    for four in 0..weights.fours() {
        let blocks = weights.four(four).map(|row| row.as_chunks::<BYTES>().0);
        if x.count() == 1 {
            let [sums] = four_rows::<1, BYTES, F>((blocks, weights.ahead), (x, 0), &unpack);
            out.put4(0, four, store4(sums));
            continue;
        }
        for start in (0..x.count()).step_by(COLUMNS) {
            let sums = four_rows::<COLUMNS, BYTES, F>((blocks, weights.ahead), (x, start), &unpack);
            for (column, sums) in (start..x.count()).zip(sums) {
                out.put4(column, four, store4(sums));
            }
        }
    }
}

/// Four rows times the columns of x from `start` on, at most `C` of them.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn four_rows<const C: usize, const BYTES: usize, F: Format32<BYTES>>(
    ([a, b, c, d], ahead): ([&[[u8; BYTES]]; 4], ReadAhead),
    (x, start): (Rows<'_, Int8Block32>, usize),
    unpack: &impl Fn(&[u8; BYTES], usize) -> Codes,
) -> [Floats4; C] {
    let mut sums = [zero4(); C];
    let columns = if C == 1 { 1 } else { C.min(x.count() - start) };
    for (at, (((a, b), c), d)) in a.iter().zip(b).zip(c).zip(d).enumerate() {
        read_ahead(ahead, [a, b, c, d]);
        let head = head::<BYTES, F>([a, b, c, d]);
        for run in 0..F::RUNS {
            let codes = [unpack(a, run), unpack(b, run), unpack(c, run), unpack(d, run)];
            for (column, sums) in sums[..columns].iter_mut().enumerate() {
                *sums = add(*sums, &head, &codes, &x.row(start + column)[F::RUNS * at + run]);
            }
        }
    }
    sums
}

#[inline]
#[target_feature(enable = "neon")]
fn head<const BYTES: usize, F: Format32<BYTES>>(blocks: [&[u8; BYTES]; 4]) -> Head {
    let zeros = blocks.map(|block| codes::zero::<BYTES, F>(block));
    Head {
        scales: match F::SCALE {
            Scale::Half => four_halves(blocks.map(|block| pair(block, 0))),
            Scale::Exponent => load4(&blocks.map(|block| codes::scale::<BYTES, F>(block))),
        },
        // SAFETY: the array has four readable numbers.
        zeros: unsafe { vld1q_s32(zeros.as_ptr()) },
        minima: F::MINIMUM.map(|at| four_halves(blocks.map(|block| pair(block, at)))),
    }
}

/// The codes of one run.
#[inline]
#[target_feature(enable = "neon")]
fn codes<const BYTES: usize, F: Format32<BYTES>>(block: &[u8; BYTES], run: usize) -> Codes {
    let bytes = load_bytes(field(block, F::QUANTS + 16 * run));
    let (low, high) = (vandq_u8(bytes, vdupq_n_u8(15)), vshrq_n_u8::<4>(bytes));
    if let Some(levels) = F::LEVELS {
        return [vqtbl1q_s8(load(levels), low), vqtbl1q_s8(load(levels), high)];
    }
    let bits = F::HIGH_BITS.map_or(0, |at| u32::from_le_bytes(*field(block, at)));
    let complete =
        |nibbles, bits| vreinterpretq_s8_u8(vorrq_u8(nibbles, vandq_u8(bits_to_bytes(bits), vdupq_n_u8(16))));
    [complete(low, bits as u16), complete(high, (bits >> 16) as u16)]
}

/// Adds the products of a run of four rows and a block of x.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn add(sums: Floats4, head: &Head, codes: &[Codes; 4], x: &Int8Block32) -> Floats4 {
    let [first, last] = x.values.as_chunks::<16>().0 else { unreachable!("thirty-two bytes") };
    let (first, last) = (load(first), load(last));
    let part = |row: usize| dot(dot(vdupq_n_s32(0), codes[row][0], first), codes[row][1], last);
    let products = integer_sums4([part(0), part(1), part(2), part(3)]);
    let totals = vcvtq_f32_s32(vmlsq_n_s32(products, head.zeros, x.sum));
    let sums = vfmaq_f32(sums, vmulq_n_f32(head.scales, x.scale), totals);
    match head.minima {
        Some(minima) => vfmaq_f32(sums, vmulq_n_f32(minima, x.scale), vdupq_n_f32(x.sum as f32)),
        None => sums,
    }
}
