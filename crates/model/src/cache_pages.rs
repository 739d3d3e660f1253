//! How many pages a cache has, and what they take.

use crate::spec::{CacheShape, CacheSource};
use crate::{ModelSpec, PAGE_TOKENS};

/// Pages that all sequences share, fixed when a model is loaded. A page holds [`PAGE_TOKENS`] tokens in every layer of
/// its kind, so its bytes follow from the model: page ids are logical, and every stage keeps its own bytes for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachePages {
    /// Pages of layers that read everything.
    pub pages: u32,
    /// Pages of layers that read a window; none where no layer has one.
    pub window: u32,
}

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
    /// Enough for all sequences at their full length.
    pub fn whole(spec: &ModelSpec, demand: &CacheDemand) -> CachePages {
        let all = demand.context.div_ceil(PAGE_TOKENS);
        let window = spec.window_pages(demand.rows_per_step).min(all);
        CachePages { pages: all.saturating_mul(demand.sequences), window: window.saturating_mul(demand.sequences) }
    }

    /// As many as fit into `bytes`, never fewer than one sequence needs. Windows get what running sequences need and
    /// as much again for prefixes that are kept, but no more than half of the bytes; the rest is for whole sequences.
    pub fn within(spec: &ModelSpec, demand: &CacheDemand, bytes: u64) -> CachePages {
        let least = CachePages::whole(spec, &CacheDemand { sequences: 1, ..*demand });
        let (page, window_page) = (spec.page_bytes(), spec.window_page_bytes());
        let count = |bytes: u64, each: u64| u32::try_from(bytes / each.max(1)).unwrap_or(u32::MAX);
        let all_windows = least.window.saturating_mul(demand.sequences).saturating_mul(2);
        if page == 0 {
            // Every layer has a window: whole pages take nothing, but still number the tokens of a sequence.
            let window = count(bytes, window_page).clamp(least.window, all_windows.max(least.window));
            return CachePages { pages: least.pages.saturating_mul(demand.sequences).saturating_mul(2), window };
        }
        let window = all_windows.min(count(bytes / 2, window_page)).max(least.window);
        let rest = bytes.saturating_sub(u64::from(window).saturating_mul(window_page));
        CachePages { pages: count(rest, page).max(least.pages), window }
    }

    /// What they take in all layers of a model.
    pub fn bytes(&self, spec: &ModelSpec) -> u64 {
        let whole = spec.page_bytes().saturating_mul(u64::from(self.pages));
        whole.saturating_add(spec.window_page_bytes().saturating_mul(u64::from(self.window)))
    }
}

impl ModelSpec {
    /// Bytes of a page in all layers that read everything.
    pub fn page_bytes(&self) -> u64 {
        self.bytes_of_page(|shape| shape.window.is_none())
    }

    /// Bytes of a page in all layers that read a window.
    pub fn window_page_bytes(&self) -> u64 {
        self.bytes_of_page(|shape| shape.window.is_some())
    }

    fn bytes_of_page(&self, counts: impl Fn(&CacheShape) -> bool) -> u64 {
        let own = self.layers.iter().filter(|layer| layer.mixer.part.cache_source() == CacheSource::Own);
        let shapes = own.map(|layer| layer.mixer.part.cache()).filter(counts);
        let numbers = shapes.map(|shape| (shape.heads * (shape.key + shape.value)) as u64);
        numbers.fold(0, u64::saturating_add).saturating_mul(self.cache.bytes()).saturating_mul(u64::from(PAGE_TOKENS))
    }
}
