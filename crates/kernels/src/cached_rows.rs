//! Cached keys and values as kernels read them.

use std::ops::Range;

/// Cached keys or values of one head in one page.
#[derive(Clone, Copy)]
pub enum CachedRows<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// Half precision, as bits.
    F16(&'a [u16]),
}

impl<'a> CachedRows<'a> {
    /// Numbers in all of them.
    pub(crate) fn len(&self) -> usize {
        match self {
            CachedRows::F32(rows) => rows.len(),
            CachedRows::F16(rows) => rows.len(),
        }
    }

    /// Bytes from these to `next`, whichever comes first in memory.
    pub(crate) fn distance_to(&self, next: CachedRows<'_>) -> usize {
        next.address().wrapping_sub(self.address())
    }

    fn address(&self) -> usize {
        match self {
            CachedRows::F32(rows) => rows.as_ptr().addr(),
            CachedRows::F16(rows) => rows.as_ptr().addr(),
        }
    }

    /// Some of them.
    pub(crate) fn range(self, range: Range<usize>) -> CachedRows<'a> {
        match self {
            CachedRows::F32(rows) => CachedRows::F32(&rows[range]),
            CachedRows::F16(rows) => CachedRows::F16(&rows[range]),
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
