//! Classes of pages, and how many pages of each a cache has.

use std::ops::{Index, IndexMut};

use super::KvLayout;
use crate::PAGE_TOKENS;

/// Which layers a page belongs to: layers that keep the same part of a sequence share a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PageClass {
    /// Layers that read the whole sequence.
    Full,
    /// Layers that read a sliding window, and keep no more than it needs.
    Window,
    /// The newest tokens of layers that quantise older ones, as exactly as they were computed.
    Tail,
}

/// Which positions of a sequence the pages of a class hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Span {
    /// The model has no layers of this class.
    #[default]
    Nothing,
    /// The newest ones, so many of them.
    Newest(u32),
    /// All of them.
    All,
}

impl PageClass {
    /// Every class.
    pub const ALL: [PageClass; 3] = [PageClass::Full, PageClass::Window, PageClass::Tail];
}

impl Span {
    /// The oldest position that a token at `position` reads.
    pub fn oldest(self, position: u32) -> u32 {
        match self {
            Span::Nothing => position,
            Span::Newest(span) => position.saturating_add(1).saturating_sub(span),
            Span::All => 0,
        }
    }

    /// Pages that one sequence needs, if it has up to `all` pages and steps have up to `rows_per_step` tokens: what the
    /// first token of a step reads and what the step writes, wherever pages begin.
    pub fn pages_per_sequence(self, rows_per_step: u32, all: u32) -> u32 {
        match self {
            Span::Nothing => 0,
            Span::Newest(span) => (span.saturating_add(rows_per_step).div_ceil(PAGE_TOKENS) + 1).min(all),
            Span::All => all,
        }
    }
}

/// One value for each class of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerClass<T>([T; PageClass::ALL.len()]);

impl<T> PerClass<T> {
    /// Makes the value of each class.
    pub fn new(value: impl FnMut(PageClass) -> T) -> PerClass<T> {
        PerClass(PageClass::ALL.map(value))
    }

    /// All values with their classes.
    pub fn iter(&self) -> impl Iterator<Item = (PageClass, &T)> {
        PageClass::ALL.into_iter().zip(&self.0)
    }
}

impl<T> PerClass<T> {
    /// The values of two different classes.
    pub(crate) fn two_mut(&mut self, classes: [PageClass; 2]) -> [&mut T; 2] {
        self.0.get_disjoint_mut(classes.map(|class| class as usize)).expect("two different classes")
    }
}

impl<T> Index<PageClass> for PerClass<T> {
    type Output = T;

    fn index(&self, class: PageClass) -> &T {
        &self.0[class as usize]
    }
}

impl<T> IndexMut<PageClass> for PerClass<T> {
    fn index_mut(&mut self, class: PageClass) -> &mut T {
        &mut self.0[class as usize]
    }
}

/// Pages that all sequences share, fixed when a model is loaded. A page holds [`PAGE_TOKENS`] tokens in every layer of
/// its class, so its bytes follow from the model: page ids are logical, and every stage keeps its own bytes for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachePages(PerClass<u32>);

/// What a cache must have room for.
#[derive(Clone, Copy, Debug)]
pub struct CacheDemand {
    /// Tokens of the longest sequence.
    pub context: u32,
    /// The most tokens of one step.
    pub rows_per_step: u32,
    /// Sequences that run at a time.
    pub sequences: u32,
}

impl CachePages {
    /// So many pages of each class.
    pub fn new(count: impl FnMut(PageClass) -> u32) -> CachePages {
        CachePages(PerClass::new(count))
    }

    /// So many pages of layers that read the whole sequence, and none of others.
    pub fn full(pages: u32) -> CachePages {
        CachePages::new(|class| if class == PageClass::Full { pages } else { 0 })
    }

    /// The same, with so many pages of layers that read a window.
    pub fn with_window(self, pages: u32) -> CachePages {
        CachePages::new(|class| if class == PageClass::Window { pages } else { self.of(class) })
    }

    /// Pages of a class.
    pub fn of(&self, class: PageClass) -> u32 {
        self.0[class]
    }

    /// Enough for all sequences at their full length.
    pub fn whole(layout: &KvLayout, demand: &CacheDemand) -> CachePages {
        let all = demand.context.div_ceil(PAGE_TOKENS);
        let one = |class| layout.span(class).pages_per_sequence(demand.rows_per_step, all);
        CachePages::new(one).map(|pages| pages.saturating_mul(demand.sequences))
    }

    /// As many as fit into `bytes`, never fewer than one sequence needs. Where sequences keep their newest tokens only, there is
    /// what running ones need, and as much again for prefixes that are kept, but no more than half of the bytes; the rest
    /// is for whole sequences. Tails have a quarter of the bytes at least: without its tail, a prefix is of no use.
    pub fn within(layout: &KvLayout, demand: &CacheDemand, bytes: u64) -> CachePages {
        let least = CachePages::whole(layout, &CacheDemand { sequences: 1, ..*demand });
        // The rows of a step are shared by all sequences in it.
        let newest = CachePages::new(|class| match layout.span(class) {
            Span::Newest(span) => {
                let running = (span.div_ceil(PAGE_TOKENS) + 1)
                    .saturating_mul(demand.sequences)
                    .saturating_add(demand.rows_per_step.div_ceil(PAGE_TOKENS));
                let quarter = match class {
                    PageClass::Tail => u32::try_from(bytes / 4 / layout.page_bytes(class)).unwrap_or(u32::MAX),
                    PageClass::Full | PageClass::Window => 0,
                };
                running.saturating_mul(2).max(quarter)
            }
            Span::Nothing | Span::All => 0,
        });
        let page = layout.page_bytes(PageClass::Full);
        let (room, wanted) = (if page == 0 { bytes } else { bytes / 2 }, newest.bytes(layout));
        let newest = newest.map(|pages| match wanted > room {
            true => (u128::from(pages) * u128::from(room) / u128::from(wanted)) as u32,
            false => pages,
        });
        let newest = CachePages::new(|class| match class {
            PageClass::Full => 0,
            PageClass::Window | PageClass::Tail => newest.of(class).max(least.of(class)),
        });
        let rest = bytes.saturating_sub(newest.bytes(layout));
        let full = match page {
            // No layer reads the whole sequence: these pages take nothing, but still number its tokens.
            0 => least.of(PageClass::Full).saturating_mul(demand.sequences).saturating_mul(2),
            page => u32::try_from(rest / page).unwrap_or(u32::MAX).max(least.of(PageClass::Full)),
        };
        CachePages::new(|class| if class == PageClass::Full { full } else { newest.of(class) })
    }

    /// No more of any class than `most` has.
    pub fn at_most(self, most: CachePages) -> CachePages {
        CachePages::new(|class| self.of(class).min(most.of(class)))
    }

    /// Whether there are at least as many of every class as `least` has.
    pub fn covers(&self, least: CachePages) -> bool {
        PageClass::ALL.iter().all(|class| self.of(*class) >= least.of(*class))
    }

    /// What they take with this layout.
    pub fn bytes(&self, layout: &KvLayout) -> u64 {
        let bytes = self.0.iter().map(|(class, pages)| layout.page_bytes(class).saturating_mul(u64::from(*pages)));
        bytes.fold(0, u64::saturating_add)
    }

    fn map(self, change: impl Fn(u32) -> u32) -> CachePages {
        CachePages::new(|class| change(self.of(class)))
    }
}
