//! What attention does with cached keys and values.
#![expect(unsafe_code, reason = "kernels compiled for an instruction set may only be called where the CPU has it")]

use std::ops::Range;

use crate::cached_rows::{CachedRows, Keys, Stored, TokenRows};
use crate::kv_codes::{CodesMut, KeyCodes, MOST_TOKENS, QueryCodes, SealScratch, Side, ValueCodes};
use crate::multiply_add::Portable;
use crate::scalar::elementwise::exp;
use crate::scalar::float::{LANES, reduce};

/// The scaled queries of one group of heads, in every form that pages meet.
pub(crate) struct Queries<'a> {
    pub(crate) numbers: &'a [f32],
    /// Filled where the page is of codes.
    pub(crate) codes: &'a QueryCodes,
}

/// A softmax whose scores become weights part by part, oldest first; they are still to be divided by their sum.
pub(crate) struct Softmax {
    greatest: f32,
    /// One more score, which has no value.
    sink: f32,
    /// Of the weights so far.
    sums: [f32; LANES],
}

impl Softmax {
    /// The sum of all weights.
    pub(crate) fn sum(&self) -> f32 {
        reduce(&self.sums) + exp::<Portable>(self.sink - self.greatest)
    }
}

/// Attention kernels of one instruction set.
pub struct AttentionOps {
    pub(crate) greatest: unsafe fn(&[f32], f32) -> f32,
    pub(crate) exp_weights: unsafe fn(&mut [f32], f32, &mut [f32; LANES]),
    pub(crate) scores_f32: unsafe fn(&[f32], Keys<'_, f32>, &mut [f32], usize),
    pub(crate) scores_f16: unsafe fn(&[f32], Keys<'_, u16>, &mut [f32], usize),
    pub(crate) scores_bf16: unsafe fn(&[f32], Keys<'_, u16>, &mut [f32], usize),
    pub(crate) scores_f8: unsafe fn(&[f32], Keys<'_, u8>, &mut [f32], usize),
    pub(crate) score_rows_f32: unsafe fn(&[f32], TokenRows<'_, f32>, &mut [f32], usize),
    pub(crate) score_rows_f16: unsafe fn(&[f32], TokenRows<'_, u16>, &mut [f32], usize),
    pub(crate) score_rows_bf16: unsafe fn(&[f32], TokenRows<'_, u16>, &mut [f32], usize),
    pub(crate) score_rows_f8: unsafe fn(&[f32], TokenRows<'_, u8>, &mut [f32], usize),
    pub(crate) mix_f32: unsafe fn(&[f32], usize, TokenRows<'_, f32>, &mut [f32]),
    pub(crate) mix_f16: unsafe fn(&[f32], usize, TokenRows<'_, u16>, &mut [f32]),
    pub(crate) mix_bf16: unsafe fn(&[f32], usize, TokenRows<'_, u16>, &mut [f32]),
    pub(crate) mix_f8: unsafe fn(&[f32], usize, TokenRows<'_, u8>, &mut [f32]),
    pub(crate) scores_codes: unsafe fn(&KeyCodes<'_>, &mut [f32], usize),
    pub(crate) mix_codes: unsafe fn((&[f32], usize), &ValueCodes<'_>, &mut [f32]),
    pub(crate) to_f16: unsafe fn(&[f32], &mut [u16]),
    pub(crate) seal: unsafe fn(&mut CodesMut<'_>, Side, usize, &mut SealScratch),
}

impl AttentionOps {
    /// Replaces scores by exp(score − greatest score) and returns their sum. `sink` is one more score, which counts
    /// in both; minus infinity where there is none.
    pub fn exp_weights(&self, scores: &mut [f32], sink: f32) -> f32 {
        let mut softmax = self.softmax(scores, sink);
        self.weigh(&mut softmax, scores);
        softmax.sum()
    }

    /// A softmax over all these scores and a sink, of which none is a weight yet.
    pub(crate) fn softmax(&self, scores: &[f32], sink: f32) -> Softmax {
        // SAFETY: a table is reachable only through `Ops::available`, which has checked the CPU.
        let greatest = unsafe { (self.greatest)(scores, sink) };
        Softmax { greatest, sink, sums: [0.0; LANES] }
    }

    /// Turns the next scores into weights: any number of sixteens, or the last ones.
    pub(crate) fn weigh(&self, softmax: &mut Softmax, scores: &mut [f32]) {
        // SAFETY: a table is reachable only through `Ops::available`, which has checked the CPU.
        unsafe { (self.exp_weights)(scores, softmax.greatest, &mut softmax.sums) }
    }

    /// Query · key for every query row and wanted token of a page of keys, stored at `query × stride + token` and
    /// counted from the first wanted one. What is read next lies `ahead` bytes after the page.
    pub(crate) fn scores(
        &self,
        queries: &Queries<'_>,
        (keys, ahead): (CachedRows<'_>, usize),
        tokens: Range<usize>,
        (scores, stride): (&mut [f32], usize),
    ) {
        let (page_tokens, head) = (keys.tokens(), keys.head());
        let Queries { numbers: queries, codes: query_codes } = *queries;
        let count = queries.len() / head;
        assert!(page_tokens.is_multiple_of(16) && tokens.start < tokens.end && tokens.end <= page_tokens && count > 0);
        assert!(scores.len() >= (count - 1) * stride + tokens.len());
        if keys.are_shared() {
            return self.score_rows(queries, (keys, ahead), tokens, (scores, stride));
        }
        let all = (page_tokens, tokens, ahead);
        // SAFETY: a table is reachable only through `Ops::available`, which has checked the CPU.
        unsafe {
            match keys.stored() {
                Stored::F32(numbers) => (self.scores_f32)(queries, page_of(numbers, all), scores, stride),
                Stored::F16(numbers) => (self.scores_f16)(queries, page_of(numbers, all), scores, stride),
                Stored::Bf16(numbers) => (self.scores_bf16)(queries, page_of(numbers, all), scores, stride),
                Stored::F8(numbers) => (self.scores_f8)(queries, page_of(numbers, all), scores, stride),
                Stored::Codes(keys) => {
                    let (_, tokens, _) = all;
                    assert!(keys.means.len() == head && keys.apart.len() == 1 + head);
                    assert!(query_codes.rounded.len() == count);
                    let page = KeyCodes { keys, queries, query_codes, head, tokens, ahead };
                    (self.scores_codes)(&page, scores, stride);
                }
            }
        }
    }

    /// The same where keys lie in rows that they share with values; the lengths have been checked.
    fn score_rows(
        &self,
        queries: &[f32],
        (keys, ahead): (CachedRows<'_>, usize),
        tokens: Range<usize>,
        (out, stride): (&mut [f32], usize),
    ) {
        // SAFETY: a table is reachable only through `Ops::available`, which has checked the CPU.
        unsafe {
            match keys.stored() {
                Stored::F32(all) => (self.score_rows_f32)(queries, keys.of_tokens(all, tokens, ahead), out, stride),
                Stored::F16(all) => (self.score_rows_f16)(queries, keys.of_tokens(all, tokens, ahead), out, stride),
                Stored::Bf16(all) => (self.score_rows_bf16)(queries, keys.of_tokens(all, tokens, ahead), out, stride),
                Stored::F8(all) => (self.score_rows_f8)(queries, keys.of_tokens(all, tokens, ahead), out, stride),
                Stored::Codes(_) => unreachable!("rows that keys and values share are floats"),
            }
        }
    }

    /// Adds `weights × values`, in key order, to every query of `out`: the weight of a key for a query lies at
    /// `query × stride + key`.
    pub fn mix(&self, weights: &[f32], stride: usize, values: CachedRows<'_>, out: &mut [f32]) {
        self.mix_page((weights, stride), (values, 0), 0..values.tokens(), out);
    }

    /// The same for some tokens of a page, where what is read next lies `ahead` bytes after the page.
    pub(crate) fn mix_page(
        &self,
        (weights, stride): (&[f32], usize),
        (values, ahead): (CachedRows<'_>, usize),
        tokens: Range<usize>,
        out: &mut [f32],
    ) {
        let head = values.head();
        let count = out.len() / head;
        assert!(count > 0 && !tokens.is_empty() && tokens.end <= values.tokens());
        assert!(weights.len() >= (count - 1) * stride + tokens.len());
        // SAFETY: a table is reachable only through `Ops::available`, which has checked the CPU.
        unsafe {
            match values.stored() {
                Stored::F32(all) => (self.mix_f32)(weights, stride, values.of_tokens(all, tokens, ahead), out),
                Stored::F16(all) => (self.mix_f16)(weights, stride, values.of_tokens(all, tokens, ahead), out),
                Stored::Bf16(all) => (self.mix_bf16)(weights, stride, values.of_tokens(all, tokens, ahead), out),
                Stored::F8(all) => (self.mix_f8)(weights, stride, values.of_tokens(all, tokens, ahead), out),
                Stored::Codes(values) => {
                    assert!(values.scales.len() <= MOST_TOKENS);
                    (self.mix_codes)((weights, stride), &ValueCodes { values, head, tokens, ahead }, out);
                }
            }
        }
    }

    /// Turns the tokens that `scratch` has into the codes of a page.
    pub(crate) fn seal(&self, page: &mut CodesMut<'_>, side: Side, head: usize, scratch: &mut SealScratch) {
        // SAFETY: a table is reachable only through `Ops::available`, which has checked the CPU.
        unsafe { (self.seal)(page, side, head, scratch) }
    }

    /// Rounds floats to half precision, as bits.
    pub fn to_f16(&self, row: &[f32], out: &mut [u16]) {
        assert_eq!(row.len(), out.len());
        // SAFETY: a table is reachable only through `Ops::available`, which has checked the CPU.
        unsafe { (self.to_f16)(row, out) }
    }
}

/// A page of keys as kernels for floats read it: tokens of a page, those wanted, and the way to the next one.
fn page_of<T>(numbers: &[T], (page_tokens, tokens, ahead): (usize, Range<usize>, usize)) -> Keys<'_, T> {
    Keys { numbers, page_tokens, tokens, ahead }
}
