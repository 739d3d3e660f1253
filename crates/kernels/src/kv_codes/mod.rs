//! Keys and values of a page as small integers, which attention multiplies as integers.
//!
//! Every token has one scale. So that no single number decides it, numbers are rotated first: what stands out in one place
//! is spread over all. Keys lose what all tokens of the page have in common before that, and the token that is least like
//! the others stays as it is. A query that is rotated likewise gives the same scores, and the mixed values are rotated back
//! once for all pages.

mod bits;
mod seal;

use std::ops::Range;

pub use bits::CodeBits;
pub(crate) use bits::VECTOR;
pub use seal::{CodesMut, SealScratch, Side};

use crate::blocks::half_to_f32;

/// Keys or values of one head in one page.
#[derive(Clone, Copy)]
pub struct Codes<'a> {
    /// Bits of a number.
    pub bits: CodeBits,
    /// The numbers, in the order that kernels want.
    pub codes: &'a [u8],
    /// What the numbers of each token are multiplied with, as f16.
    pub scales: &'a [u16],
    /// What every token has besides, number by number, as f16; nothing for values.
    pub means: &'a [u16],
    /// The token that is stored as it is: which one, and then its numbers as f16; nothing for values.
    pub apart: &'a [u16],
}

impl Codes<'_> {
    /// The vectors of all bits but the third, and those of the third where numbers have one.
    #[inline(always)]
    pub(crate) fn parts(&self) -> (&[[u8; VECTOR]], &[[u8; VECTOR]]) {
        let all = self.codes.as_chunks().0;
        all.split_at(self.bits.without_third(all.len()))
    }
}

/// The greatest factor of a product: two of them times 127 and added stay within sixteen bits.
pub(crate) const MOST: f32 = 127.0;

/// The most tokens of a page.
pub(crate) const MOST_TOKENS: usize = 64;

/// A float this large has no fractions: adding it rounds to the nearest integer, the even one of two. The lowest bits of the
/// sum are that integer.
const SHIFT: f32 = 12_582_912.0;

/// The nearest integer of a number below four million; without a call, whatever the instruction set.
#[inline(always)]
fn nearest(number: f32) -> f32 {
    (number + SHIFT) - SHIFT
}

/// Rotates numbers in runs of the greatest power of two that divides their count; doing so twice changes nothing but
/// for rounding.
#[inline(always)]
pub(crate) fn rotate(numbers: &mut [f32]) {
    let run = 1 << numbers.len().trailing_zeros().min(8);
    let scale = 1.0 / (run as f32).sqrt();
    for run in numbers.chunks_exact_mut(run) {
        let mut half = 1;
        while half < run.len() {
            for pair in run.chunks_exact_mut(2 * half) {
                let (a, b) = pair.split_at_mut(half);
                for (a, b) in a.iter_mut().zip(b) {
                    (*a, *b) = (*a + *b, *a - *b);
                }
            }
            half *= 2;
        }
        run.iter_mut().for_each(|number| *number *= scale);
    }
}

/// What numbers that became integers are to be multiplied with, and the sum of those integers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rounded {
    pub(crate) scale: f32,
    pub(crate) total: i32,
}

/// Rounds numbers to integers of at most 127. Its loops become vector code: they compare instead of calling for the greater
/// number, and add where nothing can overflow.
#[inline(always)]
pub(crate) fn to_bytes(numbers: &[f32], out: &mut [i8]) -> Rounded {
    let greatest = greatest(numbers);
    let inverse = byte_factor(greatest);
    let mut total = 0i32;
    for (out, number) in out.iter_mut().zip(numbers) {
        *out = (number * inverse + SHIFT).to_bits() as u8 as i8;
        total = total.wrapping_add(i32::from(*out));
    }
    Rounded { scale: greatest / MOST, total }
}

/// What numbers up to `greatest` in size are multiplied with to become bytes: nothing where they are too small to have such
/// a factor.
#[inline]
pub(crate) fn byte_factor(greatest: f32) -> f32 {
    let factor = MOST / greatest;
    if factor.is_finite() { factor } else { 0.0 }
}

/// The greatest size of a number; it does not depend on the order.
#[inline(always)]
fn greatest(numbers: &[f32]) -> f32 {
    let mut lanes = [0f32; 16];
    let (sixteens, rest) = numbers.as_chunks::<16>();
    for numbers in sixteens {
        for (lane, number) in lanes.iter_mut().zip(numbers) {
            *lane = if number.abs() > *lane { number.abs() } else { *lane };
        }
    }
    let mut half = 8;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] = if lanes[lane + half] > lanes[lane] { lanes[lane + half] } else { lanes[lane] };
        }
        half /= 2;
    }
    rest.iter().fold(lanes[0], |greatest, number| if number.abs() > greatest { number.abs() } else { greatest })
}

/// Numbers of a query with the zeros after them: codes of three bits come in eights.
fn padded(head: usize) -> usize {
    head.next_multiple_of(8)
}

/// Query rows as integers, rotated as keys are.
#[derive(Default)]
pub(crate) struct QueryCodes {
    /// Of every query, filled up with zeros to a multiple of eight.
    pub(crate) codes: Vec<i8>,
    pub(crate) rounded: Vec<Rounded>,
    rotated: Vec<f32>,
}

impl QueryCodes {
    /// Room for so many queries of `head` numbers.
    pub(crate) fn with_capacity(queries: usize, head: usize) -> QueryCodes {
        QueryCodes {
            codes: Vec::with_capacity(queries * padded(head)),
            rounded: Vec::with_capacity(queries),
            rotated: Vec::with_capacity(head),
        }
    }

    /// No queries.
    pub(crate) fn clear(&mut self) {
        self.codes.clear();
        self.rounded.clear();
    }

    /// Turns the queries, `head` numbers each, into integers, unless that is done already.
    pub(crate) fn fill_once(&mut self, queries: &[f32], head: usize) {
        if !self.rounded.is_empty() {
            return;
        }
        let width = padded(head);
        self.codes.resize(queries.len() / head * width, 0);
        for (query, codes) in queries.chunks_exact(head).zip(self.codes.chunks_exact_mut(width)) {
            self.rotated.clear();
            self.rotated.extend_from_slice(query);
            rotate(&mut self.rotated);
            self.rounded.push(to_bytes(&self.rotated, codes));
        }
    }
}

/// Keys of a page, as the scores kernel reads them, and the queries that meet them.
pub(crate) struct KeyCodes<'a> {
    pub(crate) keys: Codes<'a>,
    /// The queries as they are, which meet means and the token apart.
    pub(crate) queries: &'a [f32],
    /// The queries as integers.
    pub(crate) query_codes: &'a QueryCodes,
    pub(crate) head: usize,
    /// The tokens wanted.
    pub(crate) tokens: Range<usize>,
    /// Bytes from this page to the one that is read next.
    pub(crate) ahead: usize,
}

/// Values of a page, as the kernel that mixes them reads them.
pub(crate) struct ValueCodes<'a> {
    pub(crate) values: Codes<'a>,
    pub(crate) head: usize,
    /// The tokens wanted, of which the weights are.
    pub(crate) tokens: Range<usize>,
    /// Bytes from this page to the one that is read next.
    pub(crate) ahead: usize,
}

impl KeyCodes<'_> {
    /// The integers of a query.
    #[inline(always)]
    pub(crate) fn query(&self, query: usize) -> &[[i8; 4]] {
        let width = padded(self.head) / 4;
        &self.query_codes.codes.as_chunks().0[query * width..][..width]
    }

    /// The numbers of a query as they are.
    #[inline(always)]
    pub(crate) fn exact_query(&self, query: usize) -> &[f32] {
        &self.queries[query * self.head..][..self.head]
    }

    /// The token that is stored as it is, if it is wanted: its place among those wanted, and its numbers.
    #[inline(always)]
    pub(crate) fn wanted_apart(&self) -> Option<(usize, &[u16])> {
        let (token, numbers) = self.keys.apart.split_first()?;
        let token = usize::from(*token);
        self.tokens.contains(&token).then(|| (token - self.tokens.start, numbers))
    }
}

impl ValueCodes<'_> {
    /// The scales of all tokens; zero beyond the last.
    #[inline(always)]
    pub(crate) fn scales(&self) -> [f32; MOST_TOKENS] {
        let mut scales = [0.0; MOST_TOKENS];
        scales.iter_mut().zip(self.values.scales).for_each(|(scale, stored)| *scale = half_to_f32(*stored));
        scales
    }

    /// The weights of the wanted tokens, times the scales of those tokens, as integers, and what those are to be multiplied
    /// with. Nothing of it is negative.
    #[inline(always)]
    pub(crate) fn weigh(&self, weights: &[f32], scales: &[f32; MOST_TOKENS]) -> ([i8; MOST_TOKENS], f32) {
        let mut scaled = [0f32; MOST_TOKENS];
        let tokens = self.tokens.clone();
        for ((scaled, weight), scale) in scaled[tokens.clone()].iter_mut().zip(weights).zip(&scales[tokens]) {
            *scaled = weight * scale;
        }
        let mut codes = [0; MOST_TOKENS];
        let rounded = to_bytes(&scaled, &mut codes);
        (codes, rounded.scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_too_small_for_a_factor_become_nothing() {
        for greatest in [0.0, f32::from_bits(1), 1e-38, 3.7e-37] {
            assert_eq!(byte_factor(greatest), 0.0, "{greatest}");
            let mut codes = [1; 3];
            assert_eq!(to_bytes(&[greatest, -greatest, 0.0], &mut codes).total, 0);
            assert_eq!(codes, [0; 3], "{greatest}");
        }
        assert!(byte_factor(3.8e-37).is_finite() && byte_factor(3.8e-37) > 0.0);
    }
}
