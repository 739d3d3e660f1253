//! Cached keys and values as kernels read them.

use std::ops::Range;

use crate::kv_codes::Codes;

/// Cached keys or values of one head, for some tokens. Tokens are what it counts, because a format may store more than
/// numbers for each of them.
#[derive(Clone, Copy)]
pub struct CachedRows<'a> {
    stored: Stored<'a>,
    head: usize,
}

/// What is stored of those tokens.
#[derive(Clone, Copy)]
pub enum Stored<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// Half precision, as bits.
    F16(&'a [u16]),
    /// The upper half of single precision, as bits.
    Bf16(&'a [u16]),
    /// Floats of eight bits, four of them exponent (E4M3).
    F8(&'a [u8]),
    /// Small integers.
    Codes(Codes<'a>),
}

impl<'a> CachedRows<'a> {
    /// Tokens with `head` numbers each.
    pub fn new(stored: Stored<'a>, head: usize) -> CachedRows<'a> {
        CachedRows { stored, head }
    }

    /// How many tokens.
    pub fn tokens(&self) -> usize {
        match self.stored {
            Stored::F32(numbers) => numbers.len() / self.head,
            Stored::F16(numbers) | Stored::Bf16(numbers) => numbers.len() / self.head,
            Stored::F8(numbers) => numbers.len() / self.head,
            Stored::Codes(Codes { scales, .. }) => scales.len(),
        }
    }

    /// Numbers of one token.
    pub fn head(&self) -> usize {
        self.head
    }

    /// What is stored.
    pub(crate) fn stored(&self) -> Stored<'a> {
        self.stored
    }

    /// Bytes from these to `next`, whichever comes first in memory.
    pub(crate) fn distance_to(&self, next: CachedRows<'_>) -> usize {
        next.address().wrapping_sub(self.address())
    }

    fn address(&self) -> usize {
        match self.stored {
            Stored::F32(numbers) => numbers.as_ptr().addr(),
            Stored::F16(numbers) | Stored::Bf16(numbers) => numbers.as_ptr().addr(),
            Stored::F8(numbers) => numbers.as_ptr().addr(),
            Stored::Codes(Codes { codes, .. }) => codes.as_ptr().addr(),
        }
    }
}

/// Keys of one head in one page, as the scores kernel reads them: a column per token, so that lanes are tokens and no
/// sum crosses lanes.
#[derive(Clone)]
pub(crate) struct Keys<'a, T> {
    /// Number by number of the head, that number of every token of the page.
    pub(crate) numbers: &'a [T],
    /// Tokens of a page, a multiple of sixteen.
    pub(crate) page_tokens: usize,
    /// The tokens wanted.
    pub(crate) tokens: Range<usize>,
    /// Bytes from this page to the one that is read next: no processor foresees where that is.
    pub(crate) ahead: usize,
}

/// Values of one head in one page, as the kernel that mixes them reads them: a row per token.
#[derive(Clone)]
pub(crate) struct Values<'a, T> {
    /// Those of the tokens wanted.
    pub(crate) numbers: &'a [T],
    /// Numbers of one token.
    pub(crate) head: usize,
    /// Bytes from this page to the one that is read next: no processor foresees where that is.
    pub(crate) ahead: usize,
}
