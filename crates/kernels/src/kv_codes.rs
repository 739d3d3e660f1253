//! Keys and values of a page as small integers, which attention multiplies as integers.
//!
//! Every token has one scale. So that no single number decides it, numbers are rotated first: what stands out in one place
//! is spread over all. Keys lose what all tokens of the page have in common before that. A query that is rotated likewise
//! gives the same scores, and the mixed values are rotated back once for all pages.

use std::ops::Range;

use half::f16;

use crate::blocks::half_to_f32;
use crate::scalar::float::dot;

/// How many bits a number has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeBits {
    /// Sixteen levels, two numbers to a byte.
    Four,
    /// 255 levels.
    Eight,
}

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
}

/// Where one number lies: which byte, and how far it is shifted there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CodePlace {
    pub(crate) byte: usize,
    pub(crate) shift: u32,
}

/// Bytes that are loaded together: four numbers that are multiplied and added, of each of sixteen lanes.
pub(crate) const VECTOR: usize = 64;

/// The greatest factor of a product: two of them times 127 and added stay within sixteen bits.
pub(crate) const MOST: f32 = 127.0;

/// The most tokens of a page.
pub(crate) const MOST_TOKENS: usize = 64;

impl CodeBits {
    /// All of them.
    pub const ALL: [CodeBits; 2] = [CodeBits::Four, CodeBits::Eight];

    /// Sixteens of lanes that share a vector.
    pub(crate) const fn planes(self) -> usize {
        match self {
            CodeBits::Four => 2,
            CodeBits::Eight => 1,
        }
    }

    /// Vectors for four numbers of every lane.
    pub(crate) fn vectors(self, lanes: usize) -> usize {
        lanes.div_ceil(16).div_ceil(self.planes())
    }

    /// Bytes of `rows` numbers, which products add up, for each of `lanes` results.
    pub fn bytes(self, rows: usize, lanes: usize) -> usize {
        rows.div_ceil(4) * self.vectors(lanes) * VECTOR
    }

    /// Where the number of a row and a lane lies.
    pub(crate) fn place(self, row: usize, lane: usize, lanes: usize) -> CodePlace {
        let (sixteen, planes) = (lane / 16, self.planes());
        let vector = row / 4 * self.vectors(lanes) + sixteen / planes;
        CodePlace { byte: vector * VECTOR + lane % 16 * 4 + row % 4, shift: (sixteen % planes * 4) as u32 }
    }

    /// The integer that a code stands for.
    pub(crate) fn value(self, code: u8) -> i32 {
        match self {
            CodeBits::Four => 2 * i32::from(code) - 15,
            CodeBits::Eight => i32::from(code) - 128,
        }
    }

    /// The greatest of those integers.
    fn greatest(self) -> f32 {
        match self {
            CodeBits::Four => 15.0,
            CodeBits::Eight => 127.0,
        }
    }

    /// The code of the integer nearest to a number.
    fn code(self, number: f32) -> u8 {
        match self {
            CodeBits::Four => nearest((number + 15.0) * 0.5).clamp(0.0, 15.0) as u8,
            CodeBits::Eight => (nearest(number).clamp(-127.0, 127.0) + 128.0) as u8,
        }
    }
}

/// A float this large has no fractions: adding it rounds to the nearest integer, the even one of two. The lowest bits of the
/// sum are that integer.
const SHIFT: f32 = 12_582_912.0;

/// The nearest integer of a number below four million; without a call, whatever the instruction set.
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
    let inverse = if greatest > 0.0 { MOST / greatest } else { 0.0 };
    let mut total = 0i32;
    for (out, number) in out.iter_mut().zip(numbers) {
        *out = (number * inverse + SHIFT).to_bits() as u8 as i8;
        total = total.wrapping_add(i32::from(*out));
    }
    Rounded { scale: greatest / MOST, total }
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

/// Room to turn the tokens of one page into codes.
#[derive(Default)]
pub struct SealScratch {
    token: Vec<f32>,
    means: Vec<f32>,
}

impl SealScratch {
    /// Room for tokens of up to `head` numbers.
    pub fn with_capacity(head: usize) -> SealScratch {
        SealScratch { token: Vec::with_capacity(head), means: Vec::with_capacity(head) }
    }
}

/// A page of one head to be filled.
pub struct CodesMut<'a> {
    /// Bits of a number.
    pub bits: CodeBits,
    /// The numbers.
    pub codes: &'a mut [u8],
    /// The scales of all tokens.
    pub scales: &'a mut [u16],
    /// What all tokens have in common; empty if it stays in the numbers.
    pub means: &'a mut [u16],
}

/// How the numbers of a page are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Keys: the numbers of a token are added up, and every token is a result.
    Keys,
    /// Values: tokens are added up, and every number is a result.
    Values,
}

impl CodesMut<'_> {
    /// Stores the tokens that `number(token, at)` gives, with `head` numbers each. The result depends on them alone.
    pub fn seal(&mut self, side: Side, head: usize, number: impl Fn(usize, usize) -> f32, scratch: &mut SealScratch) {
        let (bits, tokens) = (self.bits, self.scales.len());
        let SealScratch { token: row, means } = scratch;
        means.clear();
        means.resize(head, 0.0);
        if !self.means.is_empty() {
            for token in 0..tokens {
                means.iter_mut().enumerate().for_each(|(at, mean)| *mean += number(token, at));
            }
            for (mean, stored) in means.iter_mut().zip(&mut *self.means) {
                *stored = f16::from_f32(*mean / tokens as f32).to_bits();
                *mean = half_to_f32(*stored);
            }
        }
        self.codes.fill(0);
        for token in 0..tokens {
            row.clear();
            row.extend(means.iter().enumerate().map(|(at, mean)| number(token, at) - mean));
            rotate(row);
            let scale = f16::from_f32(greatest(row) / bits.greatest());
            self.scales[token] = scale.to_bits();
            let inverse = if scale.to_f32() > 0.0 { 1.0 / scale.to_f32() } else { 0.0 };
            for (at, number) in row.iter().enumerate() {
                let place = match side {
                    Side::Keys => bits.place(at, token, tokens),
                    Side::Values => bits.place(token, at, head),
                };
                self.codes[place.byte] |= bits.code(number * inverse) << place.shift;
            }
        }
    }
}

/// Query rows as integers, rotated as keys are.
#[derive(Default)]
pub(crate) struct QueryCodes {
    /// Of every query, filled up with zeros to a multiple of four.
    pub(crate) codes: Vec<i8>,
    pub(crate) rounded: Vec<Rounded>,
    rotated: Vec<f32>,
}

impl QueryCodes {
    /// Room for so many queries of `head` numbers.
    pub(crate) fn with_capacity(queries: usize, head: usize) -> QueryCodes {
        QueryCodes {
            codes: Vec::with_capacity(queries * head.next_multiple_of(4)),
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
        let width = head.next_multiple_of(4);
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
    /// What all tokens of the page have in common.
    pub(crate) means: &'a [f32],
    /// The queries as they are, which meet the means.
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
        let width = self.head.div_ceil(4);
        &self.query_codes.codes.as_chunks().0[query * width..][..width]
    }

    /// What a query scores for what all tokens of the page have in common.
    #[inline(always)]
    pub(crate) fn common(&self, query: usize) -> f32 {
        dot(&self.queries[query * self.head..][..self.head], self.means)
    }
}

/// Weights of the tokens of a page as integers.
pub(crate) struct WeightCodes {
    codes: [i8; MOST_TOKENS],
    pub(crate) rounded: Rounded,
}

impl ValueCodes<'_> {
    /// The weights of the wanted tokens, times the scales of those tokens, as integers.
    #[inline(always)]
    pub(crate) fn weigh(&self, weights: &[f32]) -> WeightCodes {
        let mut scaled = [0f32; MOST_TOKENS];
        let tokens = self.tokens.clone();
        for ((scaled, weight), scale) in scaled[tokens.clone()].iter_mut().zip(weights).zip(&self.values.scales[tokens])
        {
            *scaled = weight * half_to_f32(*scale);
        }
        let mut codes = [0; MOST_TOKENS];
        let rounded = to_bytes(&scaled, &mut codes);
        WeightCodes { codes, rounded }
    }
}

impl WeightCodes {
    /// No weights.
    pub(crate) const NONE: WeightCodes =
        WeightCodes { codes: [0; MOST_TOKENS], rounded: Rounded { scale: 0.0, total: 0 } };

    /// The integers of four tokens each.
    #[inline(always)]
    pub(crate) fn quads(&self) -> &[[i8; 4]] {
        self.codes.as_chunks().0
    }
}
