//! The two products of attention over one page of cached keys or values.

use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

use crate::blocks::{brain_to_f32, byte_to_f32, half_to_f32};
use crate::cached_rows::{Keys, TokenRows};
use crate::multiply_add::{MultiplyAdd, Portable};
use crate::scalar::float::dot_with;

fn scores<T: Copy>(queries: &[f32], keys: &Keys<'_, T>, widen: impl Fn(T) -> f32, out: &mut [f32], stride: usize) {
    let head = keys.numbers.len() / keys.page_tokens;
    for (row, query) in queries.chunks_exact(head).enumerate() {
        for (at, token) in keys.tokens.clone().enumerate() {
            let numbers = keys.numbers.chunks_exact(keys.page_tokens).map(|column| widen(column[token]));
            out[row * stride + at] =
                query.iter().zip(numbers).fold(0.0, |sum: f32, (&query, key)| Portable::fused(query, key, sum));
        }
    }
}

pub(super) fn scores_f32(queries: &[f32], keys: Keys<'_, f32>, out: &mut [f32], stride: usize) {
    scores(queries, &keys, |key| key, out, stride);
}

pub(super) fn scores_f16(queries: &[f32], keys: Keys<'_, u16>, out: &mut [f32], stride: usize) {
    scores(queries, &keys, half_to_f32, out, stride);
}

pub(super) fn scores_bf16(queries: &[f32], keys: Keys<'_, u16>, out: &mut [f32], stride: usize) {
    scores(queries, &keys, brain_to_f32, out, stride);
}

pub(super) fn scores_f8(queries: &[f32], keys: Keys<'_, u8>, out: &mut [f32], stride: usize) {
    scores(queries, &keys, byte_to_f32, out, stride);
}

fn score_rows<T: Copy>(
    queries: &[f32],
    keys: &TokenRows<'_, T>,
    widen: impl Fn(T) -> f32,
    (out, stride): (&mut [f32], usize),
) {
    for (row, query) in queries.chunks_exact(keys.head).enumerate() {
        for (at, key) in keys.numbers.chunks_exact(keys.row).enumerate() {
            out[row * stride + at] = dot_with(query, &key[..keys.head], &widen);
        }
    }
}

pub(super) fn score_rows_f32(queries: &[f32], keys: TokenRows<'_, f32>, out: &mut [f32], stride: usize) {
    score_rows(queries, &keys, |key| key, (out, stride));
}

pub(super) fn score_rows_f16(queries: &[f32], keys: TokenRows<'_, u16>, out: &mut [f32], stride: usize) {
    score_rows(queries, &keys, half_to_f32, (out, stride));
}

pub(super) fn score_rows_bf16(queries: &[f32], keys: TokenRows<'_, u16>, out: &mut [f32], stride: usize) {
    score_rows(queries, &keys, brain_to_f32, (out, stride));
}

pub(super) fn score_rows_f8(queries: &[f32], keys: TokenRows<'_, u8>, out: &mut [f32], stride: usize) {
    score_rows(queries, &keys, byte_to_f32, (out, stride));
}

pub(crate) fn mix_f32(weights: &[f32], stride: usize, values: TokenRows<'_, f32>, out: &mut [f32]) {
    for (row, out) in out.chunks_exact_mut(values.head).enumerate() {
        for (at, value) in values.numbers.chunks_exact(values.row).enumerate() {
            let weight = weights[row * stride + at];
            out.iter_mut().zip(value).for_each(|(out, &value)| *out = Portable::fused(weight, value, *out));
        }
    }
}

pub(crate) fn mix_f16(weights: &[f32], stride: usize, values: TokenRows<'_, u16>, out: &mut [f32]) {
    mix_widened((weights, stride), values, half_to_f32, out);
}

pub(super) fn mix_bf16(weights: &[f32], stride: usize, values: TokenRows<'_, u16>, out: &mut [f32]) {
    mix_widened((weights, stride), values, brain_to_f32, out);
}

pub(super) fn mix_f8(weights: &[f32], stride: usize, values: TokenRows<'_, u8>, out: &mut [f32]) {
    mix_widened((weights, stride), values, byte_to_f32, out);
}

fn mix_widened<T: Copy>(
    (weights, stride): (&[f32], usize),
    values: TokenRows<'_, T>,
    widen: impl Fn(T) -> f32,
    out: &mut [f32],
) {
    let numbers: Vec<f32> = values.numbers.iter().map(|&number| widen(number)).collect();
    let TokenRows { head, row, ahead, .. } = values;
    mix_f32(weights, stride, TokenRows { numbers: &numbers, head, row, ahead }, out);
}

pub(crate) fn to_f16(row: &[f32], out: &mut [u16]) {
    out.reinterpret_cast_mut::<half::f16>().convert_from_f32_slice(row);
}
