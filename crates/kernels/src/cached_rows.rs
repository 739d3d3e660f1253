//! Cached keys and values as kernels read them.

use std::ops::Range;

use crate::kv_codes::Codes;

/// Cached keys or values of one head, for some tokens. Tokens are what it counts, because a format may store more than
/// numbers for each of them.
#[derive(Clone, Copy)]
pub struct CachedRows<'a> {
    stored: Stored<'a>,
    head: usize,
    /// Numbers of a token's row, where key and value are the first numbers of the same row.
    shared: Option<usize>,
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
    /// Tokens with `head` numbers each: keys number by number, values token by token.
    pub fn new(stored: Stored<'a>, head: usize) -> CachedRows<'a> {
        CachedRows { stored, head, shared: None }
    }

    /// The same where the key and the value of a token are the first numbers of one row of so many.
    pub fn in_shared_rows(self, row: usize) -> CachedRows<'a> {
        assert!(self.head <= row && !matches!(self.stored, Stored::Codes(_)), "only floats share rows");
        CachedRows { shared: Some(row), ..self }
    }

    /// How many tokens.
    pub fn tokens(&self) -> usize {
        match self.stored {
            Stored::F32(numbers) => numbers.len() / self.row(),
            Stored::F16(numbers) | Stored::Bf16(numbers) => numbers.len() / self.row(),
            Stored::F8(numbers) => numbers.len() / self.row(),
            Stored::Codes(Codes { scales, .. }) => scales.len(),
        }
    }

    /// Numbers of one token.
    pub fn head(&self) -> usize {
        self.head
    }

    /// Whether they lie in rows that keys and values share.
    pub(crate) fn are_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Those of some tokens that lie token by token in `numbers`. What is read next lies `ahead` bytes after the page.
    pub(crate) fn of_tokens<'n, T>(&self, numbers: &'n [T], tokens: Range<usize>, ahead: usize) -> TokenRows<'n, T> {
        let row = self.row();
        TokenRows { numbers: &numbers[tokens.start * row..tokens.end * row], head: self.head, row, ahead }
    }

    /// Numbers from a token to the next, where they lie token by token.
    fn row(&self) -> usize {
        self.shared.unwrap_or(self.head)
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

/// Keys of one head in one page, as kernels read them where they lie alone: a column per token, so that lanes are tokens
/// and no sum crosses lanes.
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

/// Values of one head in one page, or keys in rows that both share, as kernels read them: a row per token.
#[derive(Clone)]
pub(crate) struct TokenRows<'a, T> {
    /// The rows of the tokens wanted.
    pub(crate) numbers: &'a [T],
    /// The first numbers of a row, which are wanted.
    pub(crate) head: usize,
    /// Numbers of a row.
    pub(crate) row: usize,
    /// Bytes from this page to the one that is read next: no processor foresees where that is.
    pub(crate) ahead: usize,
}
