//! Dot products of floats over sixteen lanes, for float matrices.

use crate::Dtype;
use crate::activations::Rows;
use crate::multiply_add::{MultiplyAdd, Portable};
use crate::ops::WeightRows;
use crate::pool::TileMut;
use crate::runs::STREAMS;
use crate::scalar::decode_row;

/// Lanes of a float sum. Sixteen fit one AVX-512 register, two AVX2 or four NEON ones.
pub(crate) const LANES: usize = 16;

/// Adds the lanes in the order that every instruction set can follow.
#[inline(always)]
pub(crate) fn reduce(lanes: &[f32; LANES]) -> f32 {
    let eight: [f32; 8] = std::array::from_fn(|lane| lanes[lane] + lanes[lane + 8]);
    let four: [f32; 4] = std::array::from_fn(|pair| eight[2 * pair] + eight[2 * pair + 1]);
    (four[0] + four[1]) + (four[2] + four[3])
}

/// Σ a × b: lane i takes elements i, i + 16, …; a last short run is filled up with zeros.
#[inline(always)]
pub(crate) fn dot<M: MultiplyAdd>(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    // A loop, because the compiler calls what an iterator is given instead of compiling it for the instruction set.
    for (a, b) in a.iter().zip(b) {
        add_products::<M>(&mut lanes, a, b);
    }
    if !a_rest.is_empty() {
        add_products::<M>(&mut lanes, &padded(a_rest), &padded(b_rest));
    }
    reduce(&lanes)
}

/// The same where the numbers of one side are stored shorter; `widen` makes floats of them.
#[inline(always)]
pub(crate) fn dot_with<T: Copy>(a: &[f32], b: &[T], widen: impl Fn(T) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    for (a, b) in a.chunks(LANES).zip(b.chunks(LANES)) {
        let mut wide = [0.0; LANES];
        wide.iter_mut().zip(b).for_each(|(wide, number)| *wide = widen(*number));
        add_products::<Portable>(&mut lanes, &padded(a), &wide);
    }
    reduce(&lanes)
}

#[inline(always)]
fn add_products<M: MultiplyAdd>(lanes: &mut [f32; LANES], a: &[f32; LANES], b: &[f32; LANES]) {
    for lane in 0..LANES {
        lanes[lane] = M::fused(a[lane], b[lane], lanes[lane]);
    }
}

/// A short run of numbers, filled up with zeros.
#[inline(always)]
pub(crate) fn padded(rest: &[f32]) -> [f32; LANES] {
    let mut full = [0.0; LANES];
    full[..rest.len()].copy_from_slice(rest);
    full
}

fn multiply(dtype: Dtype, weights: WeightRows<'_>, x: Rows<'_, f32>, out: &mut TileMut<'_>) {
    let mut decoded = [(); STREAMS].map(|()| vec![0.0; x.length()]);
    for four in 0..weights.fours() {
        decoded.iter_mut().zip(weights.four(four)).for_each(|(out, row)| decode_row(dtype, row, out));
        for column in 0..x.count() {
            out.put4(column, four, decoded.each_ref().map(|row| dot::<Portable>(row, x.row(column))));
        }
    }
}

pub(super) fn multiply_f32(weights: WeightRows<'_>, x: Rows<'_, f32>, out: &mut TileMut<'_>) {
    multiply(Dtype::F32, weights, x, out);
}

pub(super) fn multiply_f16(weights: WeightRows<'_>, x: Rows<'_, f32>, out: &mut TileMut<'_>) {
    multiply(Dtype::F16, weights, x, out);
}

pub(super) fn multiply_bf16(weights: WeightRows<'_>, x: Rows<'_, f32>, out: &mut TileMut<'_>) {
    multiply(Dtype::BF16, weights, x, out);
}

pub(super) fn multiply_f8(weights: WeightRows<'_>, x: Rows<'_, f32>, out: &mut TileMut<'_>) {
    multiply(Dtype::F8_E4M3, weights, x, out);
}
