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

impl CachedRows<'_> {
    /// Numbers in all of them.
    pub(crate) fn len(&self) -> usize {
        match self {
            CachedRows::F32(rows) => rows.len(),
            CachedRows::F16(rows) => rows.len(),
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
}
