//! One pool for cached prefixes and adapters: pages are lent and taken back, and what was used longest ago goes, whichever
//! it is.

use std::fmt;
use std::sync::Arc;

use cascadia_model::{PAGE_TOKENS, PageBytes, PageClass};

use super::super::prefix::{NodeId, PrefixTree};
use super::super::resident::ResidentAdapters;
use super::Memory;

/// One in so many pages is never lent.
const RESERVED_PART: u32 = 5;

/// Plans in which no page is lent after sequences have taken one back: they may want more of them soon, and each that goes
/// back and forth is computed again.
const REST_PLANS: u32 = 256;

/// Adapters that use memory of pages. Only pages of layers that read whole sequences are lent: the others are few, and cached
/// prefixes are of no use without them.
pub(super) struct Lending {
    adapters: ResidentAdapters,
    pages: Arc<dyn PageBytes>,
    page_bytes: u64,
    /// Pages that are never lent.
    reserve: u32,
    /// Plans until pages are lent again.
    rest: u32,
    /// Pages that sequences took back.
    taken_back: u64,
}

impl Memory {
    /// Lets adapters use the memory of pages that no running sequence holds, but for a reserve that is enough for one sequence
    /// of `context` tokens. Uses of adapters and of cached prefixes have one clock from now on, so nothing may be cached yet.
    pub fn lend_to(&mut self, adapters: ResidentAdapters, pages: Arc<dyn PageBytes>, context: u32) {
        assert!(self.pages.iter().all(|(_, pages)| pages.free() == pages.count()), "pages are held already");
        let page_bytes = pages.page_bytes(PageClass::Full) as u64;
        // Where no layer reads whole sequences, these pages are numbers without memory.
        if page_bytes > 0 {
            let part = self.pages[PageClass::Full].count().div_ceil(RESERVED_PART);
            let reserve = part.max(context.div_ceil(PAGE_TOKENS));
            self.tree = PrefixTree::new(adapters.clock());
            self.lending = Some(Lending { adapters, pages, page_bytes, reserve, rest: 0, taken_back: 0 });
        }
    }

    /// Makes room for an adapter of so many bytes, as far as pages may be lent: of unused adapters, free pages and cached
    /// prefixes, what was used longest ago goes.
    pub fn lend_for(&mut self, bytes: u64) {
        while let Some(used) = self.next_to_lend() {
            let Some(Lending { adapters, .. }) = &self.lending else { return };
            if adapters.fits(bytes) || (!adapters.evict(used) && !self.lend()) {
                return;
            }
        }
    }

    /// Takes a page back for a sequence, if adapters do not need it, or if one would have to go for it that nobody uses and that
    /// was used before `before`.
    pub(super) fn take_back(&mut self, before: u64) -> bool {
        let taken = self.shrink(before);
        if let Some(lending) = self.lending.as_mut().filter(|_| taken) {
            lending.rest = REST_PLANS;
            lending.taken_back += 1;
        }
        taken
    }

    /// Lent pages that sequences took back so far.
    pub fn taken_back(&self) -> u64 {
        self.lending.as_ref().map_or(0, |lending| lending.taken_back)
    }

    /// Takes back what adapters do not need any more. A step is planned.
    pub(super) fn take_back_unneeded(&mut self) {
        while self.shrink(0) {}
        self.lending.iter_mut().for_each(|lending| lending.rest = lending.rest.saturating_sub(1));
    }

    /// Takes back all pages that no adapter in use needs.
    pub(super) fn take_back_all(&mut self) {
        while self.take_back(u64::MAX) {}
    }

    /// Lent pages that sequences could take back.
    pub(super) fn returnable(&self) -> u32 {
        let lent = self.pages[PageClass::Full].lent();
        let Some(lending) = self.lending.as_ref().filter(|_| lent > 0) else { return 0 };
        let needed = lending.adapters.fixed_borrowed_bytes().div_ceil(lending.page_bytes);
        lent - needed.min(u64::from(lent)) as u32
    }

    /// When the page that is lent next was used last, which counts as never for a free one; nothing where none may be lent.
    fn next_to_lend(&self) -> Option<u64> {
        let (lending, pages) = (self.lending.as_ref()?, &self.pages[PageClass::Full]);
        if lending.rest > 0 || pages.kept() <= lending.reserve {
            return None;
        }
        match pages.free() {
            0 => self.first_prefix_to_go().map(|node| self.tree.used(node)),
            _ => Some(0),
        }
    }

    /// The cached prefix that goes first for adapters. They count as one more owner, which leaves the others their floors.
    fn first_prefix_to_go(&self) -> Option<NodeId> {
        let owners = self.tree.idle().count() as u32;
        let floor = self.pages[PageClass::Full].kept() / (2 * (owners + 1));
        self.tree.oldest(|_, idle| idle > floor)
    }

    /// Lends a page, whose memory goes back to the system.
    fn lend(&mut self) -> bool {
        while self.pages[PageClass::Full].free() == 0 {
            let Some(node) = self.first_prefix_to_go() else { return false };
            self.spill_all(node);
            self.evictions.for_adapters += 1;
            self.evict(node);
        }
        let pages = &mut self.pages[PageClass::Full];
        let (Some(lending), Some(page)) = (&mut self.lending, pages.lend()) else { return false };
        let is_given_back = lending.pages.give_back_page(PageClass::Full, page).is_ok();
        match is_given_back {
            true => lending.adapters.lend(u64::from(pages.lent()) * lending.page_bytes),
            false => {
                pages.take_back();
                lending.rest = REST_PLANS;
            }
        }
        is_given_back
    }

    fn shrink(&mut self, before: u64) -> bool {
        let pages = &mut self.pages[PageClass::Full];
        let (Some(lending), Some(left)) = (&self.lending, pages.lent().checked_sub(1)) else { return false };
        let is_possible = lending.adapters.shrink(u64::from(left) * lending.page_bytes, before);
        if is_possible {
            pages.take_back();
        }
        is_possible
    }
}

impl fmt::Debug for Lending {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Lending").field("adapters", &self.adapters).finish_non_exhaustive()
    }
}
