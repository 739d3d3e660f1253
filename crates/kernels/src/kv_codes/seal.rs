//! Turning the tokens of a page into codes. The result depends on those tokens alone: this is plain code, which every
//! instruction set compiles for itself, and sums run over sixteen lanes in a fixed order.

use half::f16;

use super::{CodeBits, MOST, MOST_TOKENS, greatest, nearest, rotate};
use crate::Ops;
use crate::blocks::half_to_f32;

/// Room to turn the tokens of one page into codes.
#[derive(Default)]
pub struct SealScratch {
    /// All tokens, one after the other.
    tokens: Vec<f32>,
    means: Vec<f32>,
    chosen: Chosen,
    /// The codes of all tokens, one after the other.
    codes: Vec<u8>,
}

/// What the numbers of a token became.
#[derive(Default)]
struct Chosen {
    codes: Vec<u8>,
    /// The levels of those codes.
    levels: Vec<f32>,
}

impl SealScratch {
    /// Room for tokens of up to `head` numbers.
    pub fn with_capacity(head: usize) -> SealScratch {
        let numbers = |count| Vec::with_capacity(count);
        let chosen = Chosen { codes: Vec::with_capacity(head), levels: numbers(head) };
        SealScratch {
            tokens: numbers(MOST_TOKENS * head),
            means: numbers(head),
            chosen,
            codes: Vec::with_capacity(MOST_TOKENS * head),
        }
    }

    /// Room for so many numbers: those of all tokens, one token after the other.
    pub fn room(&mut self, numbers: usize) -> &mut [f32] {
        self.tokens.clear();
        self.tokens.resize(numbers, 0.0);
        &mut self.tokens
    }

    /// What was written there.
    pub fn tokens(&self) -> &[f32] {
        &self.tokens
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
    /// The token that stays as it is: which one, and its numbers; empty where there are no means.
    pub apart: &'a mut [u16],
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
    /// Stores the tokens that `scratch` has, with `head` numbers each.
    pub fn seal(&mut self, side: Side, head: usize, scratch: &mut SealScratch, ops: &Ops) {
        assert!(scratch.tokens.len() == self.scales.len() * head && self.scales.len() <= MOST_TOKENS, "all tokens");
        ops.attention.seal(self, side, head, scratch);
    }

    /// The same, inlined into every instruction set's own.
    #[inline(always)]
    pub(crate) fn seal_tokens(&mut self, side: Side, head: usize, scratch: &mut SealScratch) {
        let (bits, count) = (self.bits, self.scales.len());
        let SealScratch { tokens, means, chosen, codes } = scratch;
        if !self.means.is_empty() {
            self.set_apart(tokens, means);
        }
        codes.clear();
        for (token, row) in tokens.chunks_exact_mut(head).enumerate() {
            rotate(row);
            self.scales[token] = chosen.round(bits, row).to_bits();
            codes.extend_from_slice(&chosen.codes);
        }
        self.codes.fill(0);
        match side {
            Side::Values => codes.chunks_exact(head).enumerate().for_each(|(token, row)| {
                bits.put(self.codes, token, row);
            }),
            Side::Keys => (0..head).for_each(|at| {
                let mut row = [0; MOST_TOKENS];
                row.iter_mut().zip(codes[at..].iter().step_by(head)).for_each(|(code, of_token)| *code = *of_token);
                bits.put(self.codes, at, &row[..count]);
            }),
        }
    }

    /// Stores the token that is least like the others as it is, and the mean of the others; leaves of every token what is not
    /// stored yet. The first token of a text is such a one: most queries look at it, and its keys are many times as large as
    /// others.
    #[inline(always)]
    fn set_apart(&mut self, tokens: &mut [f32], means: &mut Vec<f32>) {
        let head = self.means.len();
        means.clear();
        means.resize(head, 0.0);
        average(tokens.chunks_exact(head), means);
        let mut farthest = (0, 0.0);
        for (token, row) in tokens.chunks_exact(head).enumerate() {
            let distance = sum_of_squares(row, means);
            if distance > farthest.1 {
                farthest = (token, distance);
            }
        }
        let apart = farthest.0;
        self.apart[0] = apart as u16;
        for (stored, number) in self.apart[1..].iter_mut().zip(&tokens[apart * head..]) {
            *stored = f16::from_f32(*number).to_bits();
        }
        let others = tokens.chunks_exact(head).enumerate().filter(|(token, _)| *token != apart);
        average(others.map(|(_, row)| row), means);
        for (mean, stored) in means.iter_mut().zip(&mut *self.means) {
            *stored = f16::from_f32(*mean).to_bits();
            *mean = half_to_f32(*stored);
        }
        for (token, row) in tokens.chunks_exact_mut(head).enumerate() {
            row.iter_mut().zip(&*means).for_each(|(number, mean)| *number -= mean);
            if token == apart {
                row.fill(0.0);
            }
        }
    }
}

impl Chosen {
    /// Chooses the codes of a token's numbers; returns what the integers that they stand for are to be multiplied with.
    #[inline(always)]
    fn round(&mut self, bits: CodeBits, row: &[f32]) -> f16 {
        self.codes.clear();
        self.codes.resize(row.len(), 0);
        match bits {
            CodeBits::Two => self.round_to_levels::<4>(bits, row),
            CodeBits::Three => self.round_to_levels::<8>(bits, row),
            CodeBits::Four => self.round_to_levels::<16>(bits, row),
            CodeBits::Eight => {
                let scale = f16::from_f32(greatest(row) / MOST);
                let inverse = if scale > f16::ZERO { 1.0 / scale.to_f32() } else { 0.0 };
                for (code, number) in self.codes.iter_mut().zip(row) {
                    *code = (nearest(number * inverse).clamp(-MOST, MOST) + 128.0) as u8;
                }
                scale
            }
        }
    }

    /// The same for `N` levels: a scale by the numbers' deviation, and then the one that suits the levels chosen with it best.
    #[inline(always)]
    fn round_to_levels<const N: usize>(&mut self, bits: CodeBits, row: &[f32]) -> f16 {
        let levels: &[i8; N] = bits.levels().first_chunk().expect("as many levels as there are codes");
        self.levels.clear();
        self.levels.resize(row.len(), 0.0);
        let deviation = (sum_of_products(row, row) / row.len() as f32).sqrt();
        self.choose(levels, row, deviation * bits.spread() / MOST);
        let fitting = sum_of_products(row, &self.levels) / sum_of_products(&self.levels, &self.levels);
        let scale = f16::from_f32(fitting);
        self.choose(levels, row, scale.to_f32());
        scale
    }

    /// Chooses the levels next to the numbers, if levels are multiplied with `scale`.
    #[inline(always)]
    fn choose<const N: usize>(&mut self, levels: &[i8; N], row: &[f32], scale: f32) {
        self.codes.fill(0);
        for pair in levels.windows(2) {
            let middle = (f32::from(pair[0]) + f32::from(pair[1])) * 0.5 * scale;
            // An addition that looks for overflow would be done one by one.
            let above = |number: f32| u8::from(number > middle);
            self.codes.iter_mut().zip(row).for_each(|(code, number)| *code = code.wrapping_add(above(*number)));
        }
        for (level, code) in self.levels.iter_mut().zip(&self.codes) {
            *level = f32::from(levels[usize::from(*code) % N]);
        }
    }
}

/// The mean of some tokens, number by number.
#[inline(always)]
fn average<'a>(tokens: impl Iterator<Item = &'a [f32]>, means: &mut [f32]) {
    means.fill(0.0);
    let mut count = 0;
    for token in tokens {
        means.iter_mut().zip(token).for_each(|(mean, number)| *mean += number);
        count += 1;
    }
    means.iter_mut().for_each(|mean| *mean /= count.max(1) as f32);
}

/// Σ a × b.
#[inline(always)]
fn sum_of_products(a: &[f32], b: &[f32]) -> f32 {
    sum_of(a, b, |a, b| a * b)
}

/// Σ (a − b)².
#[inline(always)]
fn sum_of_squares(a: &[f32], b: &[f32]) -> f32 {
    sum_of(a, b, |a, b| (a - b) * (a - b))
}

/// Σ term(a, b): lane i takes elements i, i + 16, …, and lanes are added in order.
#[inline(always)]
fn sum_of(a: &[f32], b: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0; 16];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
    for (a, b) in a.iter().zip(b) {
        for lane in 0..16 {
            lanes[lane] += term(a[lane], b[lane]);
        }
    }
    for (lane, (a, b)) in a_rest.iter().zip(b_rest).enumerate() {
        lanes[lane] += term(*a, *b);
    }
    lanes.iter().sum()
}
