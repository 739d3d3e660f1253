//! Adapters in memory, within a limit: those that nobody uses go first, the longest unused before others.

use std::collections::HashMap;
use std::sync::Arc;

use cascadia_model::{Adapter, AdapterId};

/// What is in memory.
pub(super) struct Resident {
    adapters: HashMap<AdapterId, Loaded>,
    limit: u64,
    clock: u64,
}

struct Loaded {
    adapter: Arc<Adapter>,
    used: u64,
    pinned: bool,
}

impl Resident {
    /// Nothing, with room for so many bytes.
    pub(super) fn new(limit: u64) -> Resident {
        Resident { adapters: HashMap::new(), limit, clock: 0 }
    }

    /// An adapter that is in memory, which counts as used.
    pub(super) fn find(&mut self, id: AdapterId) -> Option<Arc<Adapter>> {
        self.clock += 1;
        let loaded = self.adapters.get_mut(&id)?;
        loaded.used = self.clock;
        Some(Arc::clone(&loaded.adapter))
    }

    /// Whether an adapter is in memory.
    pub(super) fn has(&self, id: AdapterId) -> bool {
        self.adapters.contains_key(&id)
    }

    /// Whether so many bytes more fit without another adapter leaving.
    pub(super) fn fits(&self, bytes: u64) -> bool {
        self.bytes().saturating_add(bytes) <= self.limit
    }

    /// Keeps an adapter if there is room, or can be made. Gives the one to use: another thread may have been faster.
    pub(super) fn keep(&mut self, adapter: Arc<Adapter>) -> Arc<Adapter> {
        if let Some(known) = self.find(adapter.id()) {
            return known;
        }
        while !self.fits(adapter.bytes()) && self.evict() {}
        if self.fits(adapter.bytes()) {
            let loaded = Loaded { adapter: Arc::clone(&adapter), used: self.clock, pinned: false };
            self.adapters.insert(adapter.id(), loaded);
        }
        adapter
    }

    /// Keeps an adapter in memory for good, if it is there.
    pub(super) fn pin(&mut self, id: AdapterId) {
        self.adapters.get_mut(&id).into_iter().for_each(|loaded| loaded.pinned = true);
    }

    /// Forgets an adapter; whoever uses it keeps it until then.
    pub(super) fn remove(&mut self, id: AdapterId) {
        self.adapters.remove(&id);
    }

    /// Gives up the adapter that was not used for the longest time; `false` if all are in use.
    fn evict(&mut self) -> bool {
        let idle = self.adapters.iter().filter(|(_, loaded)| !loaded.pinned && Arc::strong_count(&loaded.adapter) == 1);
        let oldest = idle.min_by_key(|(_, loaded)| loaded.used).map(|(id, _)| *id);
        oldest.is_some_and(|id| self.adapters.remove(&id).is_some())
    }

    /// What they take.
    pub(super) fn bytes(&self) -> u64 {
        self.adapters.values().map(|loaded| loaded.adapter.bytes()).sum()
    }
}
