//! Formats with runs of 32: four weight rows at a time, one lane of the float sums per row.

use std::arch::aarch64::*;

use super::interleaved32;
use super::lanes::{
    Floats4, bits_to_bytes, dot, four_halves, integer_sums4, load, load_bytes, load4, read_ahead, store4, zero4,
};
use crate::Dtype;
use crate::activations::{Int8Block32, Rows};
use crate::blocks::{q4_0, q8_0};
use crate::codes::{self, Format32, Scale, Zero, with_format32};
use crate::ops::{Multiply, WeightRows};
use crate::pool::TileMut;
use crate::vector::{LEAST_TURNED, field};

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

/// Q8_0 as far as it is like the others: an f16 scale before single runs, without zero points.
struct Q80;

impl Format32<{ q8_0::BYTES }> for Q80 {
    const QUANTS: usize = q8_0::QUANTS;
}

/// Q4_0.
struct Q40;

impl Format32<{ q4_0::BYTES }> for Q40 {
    const QUANTS: usize = q4_0::QUANTS;
    const ZERO: Zero = Zero::Always(q4_0::OFFSET);
}

#[target_feature(enable = "neon,dotprod")]
pub(super) fn multiply_q8_0(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    if x.count() >= LEAST_TURNED {
        return interleaved32::turned_q8_0(weights, x, out);
    }
    few_columns::<4, { q8_0::BYTES }, Q80>(weights, x, out, |block, _| {
        let bytes = |at| vreinterpretq_s8_u8(load_bytes(field(block, q8_0::QUANTS + at)));
        [bytes(0), bytes(16)]
    });
}

#[target_feature(enable = "neon,dotprod")]
pub(super) fn multiply_q4_0(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    if x.count() >= LEAST_TURNED {
        return interleaved32::turned_q4_0(weights, x, out);
    }
    few_columns::<4, { q4_0::BYTES }, Q40>(weights, x, out, |block, run| codes::<_, Q40>(block, run));
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
    let unpack = |block: &[u8; BYTES], run| codes::<BYTES, F>(block, run);
    match F::RUNS {
        _ if x.count() >= LEAST_TURNED => many_columns::<BYTES, F>(weights, x, out),
        1 => few_columns::<4, BYTES, F>(weights, x, out, unpack),
        2 => few_columns::<2, BYTES, F>(weights, x, out, unpack),
        4 => few_columns::<1, BYTES, F>(weights, x, out, unpack),
        runs => unreachable!("four blocks of x are no multiple of {runs} runs"),
    }
}

/// Multiplies weight rows, four at a time, with one column after the other; `unpack` gives the codes of a run. `N` blocks
/// meet four blocks of x.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn few_columns<const N: usize, const BYTES: usize, F: Format32<BYTES>>(
    weights: WeightRows<'_>,
    x: Rows<'_, Int8Block32>,
    out: &mut TileMut<'_>,
    unpack: impl Fn(&[u8; BYTES], usize) -> Codes,
) {
    for four in 0..weights.fours() {
        let [a, b, c, d] = weights.four(four).map(|row| row.as_chunks::<BYTES>().0.as_chunks::<N>());
        for column in 0..x.count() {
            let (fours, rest) = x.row(column).as_chunks::<4>();
            let mut sums = Sums::new();
            for ((((x, a), b), c), d) in fours.iter().zip(a.0).zip(b.0).zip(c.0).zip(d.0) {
                read_ahead(weights.ahead, [a, b, c, d]);
                // Written out, because the compiler would keep a loop.
                macro_rules! add_block {
                    ($at:literal) => {
                        if $at < N {
                            let (blocks, x) = ([&a[$at], &b[$at], &c[$at], &d[$at]], &x[$at * F::RUNS..]);
                            sums.add::<BYTES, F>(blocks, x, &unpack);
                        }
                    };
                }
                add_block!(0);
                add_block!(1);
                add_block!(2);
                add_block!(3);
            }
            for ((((x, a), b), c), d) in rest.chunks_exact(F::RUNS).zip(a.1).zip(b.1).zip(c.1).zip(d.1) {
                sums.add::<BYTES, F>([a, b, c, d], x, &unpack);
            }
            out.put4(column, four, store4(sums.floats));
        }
    }
}

/// The sums of four rows and one column.
struct Sums {
    floats: Floats4,
    /// Sums of the rows' products that run on from run to run: starting each with zeros takes more instructions than
    /// subtracting what was there before.
    running: [int32x4_t; 4],
    /// What they were after the last run, one lane per row.
    before: int32x4_t,
}

impl Sums {
    #[inline]
    #[target_feature(enable = "neon")]
    fn new() -> Sums {
        Sums { floats: zero4(), running: [vdupq_n_s32(0); 4], before: vdupq_n_s32(0) }
    }

    /// Adds the products of a block of four rows and as many blocks of x as it has runs.
    #[inline]
    #[target_feature(enable = "neon,dotprod")]
    fn add<const BYTES: usize, F: Format32<BYTES>>(
        &mut self,
        rows: [&[u8; BYTES]; 4],
        x: &[Int8Block32],
        unpack: &impl Fn(&[u8; BYTES], usize) -> Codes,
    ) {
        let head = head::<BYTES, F>(rows);
        macro_rules! add_run {
            ($run:literal) => {
                if $run < F::RUNS {
                    let [a, b, c, d] = rows;
                    let codes = [unpack(a, $run), unpack(b, $run), unpack(c, $run), unpack(d, $run)];
                    let products = self.products(&codes, &x[$run]);
                    self.floats = add_run::<BYTES, F>(self.floats, &head, products, &x[$run]);
                }
            };
        }
        add_run!(0);
        add_run!(1);
        add_run!(2);
        add_run!(3);
    }

    /// The sums of the products of one run.
    #[inline]
    #[target_feature(enable = "neon,dotprod")]
    fn products(&mut self, codes: &[Codes; 4], x: &Int8Block32) -> int32x4_t {
        add_products(&mut self.running, codes, x);
        let sums = integer_sums4(self.running);
        let products = vsubq_s32(sums, self.before);
        self.before = sums;
        products
    }
}

/// Multiplies weight rows, four at a time, with columns that share the unpacking.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn many_columns<const BYTES: usize, F: Format32<BYTES>>(
    weights: WeightRows<'_>,
    x: Rows<'_, Int8Block32>,
    out: &mut TileMut<'_>,
) {
    for four in 0..weights.fours() {
        let [a, b, c, d] = weights.four(four).map(|row| row.as_chunks::<BYTES>().0);
        for start in (0..x.count()).step_by(COLUMNS) {
            let mut sums = [zero4(); COLUMNS];
            let columns = COLUMNS.min(x.count() - start);
            for (at, (((a, b), c), d)) in a.iter().zip(b).zip(c).zip(d).enumerate() {
                let head = head::<BYTES, F>([a, b, c, d]);
                for run in 0..F::RUNS {
                    let unpack = |block| codes::<BYTES, F>(block, run);
                    let codes = [unpack(a), unpack(b), unpack(c), unpack(d)];
                    for (column, sums) in sums[..columns].iter_mut().enumerate() {
                        let x = &x.row(start + column)[F::RUNS * at + run];
                        let mut products = [vdupq_n_s32(0); 4];
                        add_products(&mut products, &codes, x);
                        *sums = add_run::<BYTES, F>(*sums, &head, integer_sums4(products), x);
                    }
                }
            }
            for (column, sums) in (start..x.count()).zip(sums) {
                out.put4(column, four, store4(sums));
            }
        }
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn head<const BYTES: usize, F: Format32<BYTES>>(blocks: [&[u8; BYTES]; 4]) -> Head {
    let zeros = blocks.map(|block| codes::zero::<BYTES, F>(block));
    Head {
        scales: match F::SCALE {
            Scale::Half => four_halves(blocks.map(|block| field(block, 0))),
            Scale::Exponent => load4(&blocks.map(|block| codes::scale::<BYTES, F>(block))),
        },
        // SAFETY: the array has four readable numbers.
        zeros: unsafe { vld1q_s32(zeros.as_ptr()) },
        minima: F::MINIMUM.map(|at| four_halves(blocks.map(|block| field(block, at)))),
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
fn add_products(sums: &mut [int32x4_t; 4], codes: &[Codes; 4], x: &Int8Block32) {
    let [first, last] = x.values.as_chunks::<16>().0 else { unreachable!("thirty-two bytes") };
    let (first, last) = (load(first), load(last));
    for (sum, codes) in sums.iter_mut().zip(codes) {
        *sum = dot(dot(*sum, codes[0], first), codes[1], last);
    }
}

/// Adds what a run is worth, given the sums of its products.
#[inline]
#[target_feature(enable = "neon")]
fn add_run<const BYTES: usize, F: Format32<BYTES>>(
    sums: Floats4,
    head: &Head,
    products: int32x4_t,
    x: &Int8Block32,
) -> Floats4 {
    let total = match F::ZERO {
        Zero::Always(0) => products,
        Zero::Always(zero) => vsubq_s32(products, vdupq_n_s32(zero.wrapping_mul(x.sum))),
        Zero::At(_) => vmlsq_n_s32(products, head.zeros, x.sum),
    };
    let sums = vfmaq_f32(sums, vmulq_n_f32(head.scales, x.scale), vcvtq_f32_s32(total));
    match head.minima {
        Some(minima) => vfmaq_n_f32(sums, vmulq_n_f32(minima, x.scale), x.sum as f32),
        None => sums,
    }
}
