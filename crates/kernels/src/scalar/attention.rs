//! The two products of attention over one page of cached keys or values.

use crate::blocks::half_to_f32;
use crate::scalar::float::dot;

pub(super) fn scores_f32(queries: &[f32], keys: &[f32], head: usize, scores: &mut [f32], stride: usize) {
    for (at, key) in keys.chunks_exact(head).enumerate() {
        for (row, query) in queries.chunks_exact(head).enumerate() {
            scores[row * stride + at] = dot(query, key);
        }
    }
}

pub(super) fn scores_f16(queries: &[f32], keys: &[u16], head: usize, scores: &mut [f32], stride: usize) {
    scores_f32(queries, &widened(keys), head, scores, stride);
}

pub(crate) fn mix_f32(weights: &[f32], stride: usize, values: &[f32], head: usize, out: &mut [f32]) {
    for (row, out) in out.chunks_exact_mut(head).enumerate() {
        for (at, value) in values.chunks_exact(head).enumerate() {
            let weight = weights[row * stride + at];
            out.iter_mut().zip(value).for_each(|(out, &value)| *out = weight.mul_add(value, *out));
        }
    }
}

pub(crate) fn mix_f16(weights: &[f32], stride: usize, values: &[u16], head: usize, out: &mut [f32]) {
    mix_f32(weights, stride, &widened(values), head, out);
}

pub(crate) fn to_f16(row: &[f32], out: &mut [u16]) {
    out.iter_mut().zip(row).for_each(|(out, &value)| *out = half::f16::from_f32(value).to_bits());
}

fn widened(halves: &[u16]) -> Vec<f32> {
    halves.iter().map(|&half| half_to_f32(half)).collect()
}
