//! What keeps pages that the KV cache gives up: a slower memory below it.

use std::fmt::Debug;

use cascadia_model::{PageClass, PageId, PerClass};

use super::prefix::PrefixKey;

/// A page of some text, by everything that it depends on.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// Whose text it is, and which adapter computed it.
    pub owner: PrefixKey,
    /// The text from its first token up to the last one of the page.
    pub tokens: &'a [u32],
    /// The class of the page.
    pub class: PageClass,
}

/// What came of reading a page back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// The page holds what it held when it was given up.
    Filled,
    /// It is not there, or cannot be trusted: it has to be computed.
    Missing,
    /// This step has waited long enough for other pages.
    Later,
}

/// Keeps pages below the KV cache. It may lose any of them at any time, and never gives one of another text.
pub trait PageTier: Debug + Send {
    /// A step is planned: the time that it may wait for pages begins.
    fn begin_plan(&mut self);
    /// A page is about to be given up: keeps what it holds, if there is room.
    fn keep(&mut self, block: Block<'_>, page: PageId);
    /// Which classes are kept of each page of a text, whose first `held` pages the cache holds. What is kept of the text counts
    /// as used.
    fn find(&mut self, owner: PrefixKey, tokens: &[u32], held: usize) -> Vec<PerClass<bool>>;
    /// Whether reading so many pages of each class takes less time than computing so many tokens.
    fn pays(&mut self, pages: &PerClass<usize>, tokens: usize) -> bool;
    /// Fills a page with what was kept.
    fn fetch(&mut self, block: Block<'_>, page: PageId) -> Fetched;
    /// The service ends: what is kept from now on may wait for the disk, for a bounded time.
    fn conclude(&mut self);
    /// Nothing that is kept may be used again.
    fn forget(&mut self);
}
