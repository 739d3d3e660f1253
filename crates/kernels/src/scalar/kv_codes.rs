//! The two products of attention over one page of keys or values that are small integers.

use crate::blocks::half_to_f32;
use crate::kv_codes::{Codes, CodesMut, KeyCodes, SealScratch, Side, ValueCodes};
use crate::multiply_add::{MultiplyAdd, Portable};
use crate::scalar::float::dot_with;

pub(super) fn scores(page: &KeyCodes<'_>, out: &mut [f32], stride: usize) {
    let tokens = page.keys.scales.len();
    for (row, rounded) in page.query_codes.rounded.iter().enumerate() {
        // What the query scores for what all tokens of the page have in common.
        let common = dot_with(page.exact_query(row), page.keys.means, half_to_f32);
        for (at, token) in page.tokens.clone().enumerate() {
            let sum = sum(&page.keys, page.query(row), |at| (at, token), tokens);
            let scale = half_to_f32(page.keys.scales[token]) * rounded.scale;
            out[row * stride + at] = Portable::fused(sum as f32, scale, common);
        }
        if let Some((at, numbers)) = page.wanted_apart() {
            out[row * stride + at] = dot_with(page.exact_query(row), numbers, half_to_f32);
        }
    }
}

pub(super) fn seal(page: &mut CodesMut<'_>, side: Side, head: usize, scratch: &mut SealScratch) {
    page.seal_tokens(side, head, scratch);
}

pub(super) fn mix((weights, stride): (&[f32], usize), page: &ValueCodes<'_>, out: &mut [f32]) {
    let scales = page.scales();
    for (row, out) in out.chunks_exact_mut(page.head).enumerate() {
        let (weights, scale) = page.weigh(&weights[row * stride..][..page.tokens.len()], &scales);
        for (at, out) in out.iter_mut().enumerate() {
            let sum = sum(&page.values, weights.as_chunks().0, |token| (token, at), page.head);
            *out = Portable::fused(sum as f32, scale, *out);
        }
    }
}

/// Σ factor × number over all rows of one lane; factors beyond the last row are zero.
fn sum(codes: &Codes<'_>, factors: &[[i8; 4]], place: impl Fn(usize) -> (usize, usize), lanes: usize) -> i32 {
    let rows = codes.parts().0.len() / codes.bits.vectors(lanes) * 4;
    let number = |row: usize| {
        let (row, lane) = place(row);
        codes.bits.get(codes.codes, (row, lane, lanes))
    };
    factors.as_flattened().iter().take(rows).enumerate().map(|(row, factor)| i32::from(*factor) * number(row)).sum()
}
