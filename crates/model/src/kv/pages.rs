//! Classes of pages, and how many pages of each a cache has.

use std::ops::{Index, IndexMut};

use super::KvLayout;
use crate::{ModelSpec, PAGE_TOKENS};

/// Which layers a page belongs to: layers that keep the same part of a sequence share a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PageClass {
    /// Layers that read the whole sequence.
    Full,
    /// Layers that read a sliding window, and keep no more than it needs.
    Window,
}

impl PageClass {
    /// Every class.
    pub const ALL: [PageClass; 2] = [PageClass::Full, PageClass::Window];
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
    pub fn whole(spec: &ModelSpec, demand: &CacheDemand) -> CachePages {
        let all = demand.context.div_ceil(PAGE_TOKENS);
        CachePages::new(|class| spec.pages_per_sequence(class, demand.rows_per_step, all))
            .map(|pages| pages.saturating_mul(demand.sequences))
    }

    /// As many as fit into `bytes`, never fewer than one sequence needs. Windows get what running sequences need and
    /// as much again for prefixes that are kept, but no more than half of the bytes; the rest is for whole sequences.
    pub fn within(spec: &ModelSpec, layout: &KvLayout, demand: &CacheDemand, bytes: u64) -> CachePages {
        let least = CachePages::whole(spec, &CacheDemand { sequences: 1, ..*demand });
        let [least_full, least_window] = PageClass::ALL.map(|class| least.of(class));
        let [page, window_page] = PageClass::ALL.map(|class| layout.page_bytes(class));
        let count = |bytes: u64, each: u64| u32::try_from(bytes / each.max(1)).unwrap_or(u32::MAX);
        let all_windows = least_window.saturating_mul(demand.sequences).saturating_mul(2);
        if page == 0 {
            // Every layer has a window: full pages take nothing, but still number the tokens of a sequence.
            let window = count(bytes, window_page).clamp(least_window, all_windows.max(least_window));
            return CachePages::full(least_full.saturating_mul(demand.sequences).saturating_mul(2)).with_window(window);
        }
        let window = all_windows.min(count(bytes / 2, window_page)).max(least_window);
        let rest = bytes.saturating_sub(u64::from(window).saturating_mul(window_page));
        CachePages::full(count(rest, page).max(least_full)).with_window(window)
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

impl ModelSpec {
    /// Pages of a class that one sequence needs, if it has up to `all` pages and steps have up to `rows_per_step` tokens.
    /// In a window that is what the first token of a step reads and what the step writes, wherever pages begin.
    pub fn pages_per_sequence(&self, class: PageClass, rows_per_step: u32, all: u32) -> u32 {
        match class {
            PageClass::Full => all,
            PageClass::Window => self
                .window()
                .map_or(0, |window| (window.saturating_add(rows_per_step).div_ceil(PAGE_TOKENS) + 1).min(all)),
        }
    }
}
