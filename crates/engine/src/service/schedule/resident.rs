//! Adapters in memory: which are there, how much they may take, and which of them goes first.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cascadia_model::AdapterId;

use super::use_clock::UseClock;

/// Adapters in memory of their own and in memory that is lent to them. Cheap to clone, shared by all threads.
#[derive(Clone, Debug)]
pub struct ResidentAdapters {
    clock: UseClock,
    state: Arc<Mutex<State>>,
}

/// The weights of an adapter; whoever has a clone uses them. What goes first depends on bytes and uses alone, so their type
/// does not matter here.
pub type Weights = Arc<dyn Any + Send + Sync>;

#[derive(Debug)]
struct State {
    adapters: HashMap<AdapterId, Loaded>,
    /// What all of them take.
    bytes: u64,
    /// What they may always take.
    own: u64,
    /// What they may take beyond that, as long as it is lent.
    lent: u64,
}

#[derive(Debug)]
struct Loaded {
    weights: Weights,
    bytes: u64,
    used: u64,
    pinned: bool,
}

impl ResidentAdapters {
    /// Nothing, with `own` bytes that nobody else gets.
    pub fn new(own: u64) -> ResidentAdapters {
        let state = State { adapters: HashMap::new(), bytes: 0, own, lent: 0 };
        ResidentAdapters { clock: UseClock::default(), state: Arc::new(Mutex::new(state)) }
    }

    /// What counts their uses.
    pub fn clock(&self) -> UseClock {
        self.clock.clone()
    }

    /// The weights of an adapter that is in memory, which counts as used.
    pub fn find(&self, id: AdapterId) -> Option<Weights> {
        self.state().find(id, self.clock.tick())
    }

    /// An adapter is used, if it is in memory.
    pub fn touch(&self, id: AdapterId) {
        let now = self.clock.tick();
        self.state().adapters.get_mut(&id).into_iter().for_each(|loaded| loaded.used = now);
    }

    /// Whether an adapter is in memory.
    pub fn has(&self, id: AdapterId) -> bool {
        self.state().adapters.contains_key(&id)
    }

    /// Whether so many bytes more fit without another adapter leaving.
    pub fn fits(&self, bytes: u64) -> bool {
        self.state().fits(bytes)
    }

    /// Keeps an adapter if it fits. Gives the weights to use: another thread may have been faster.
    pub fn keep(&self, id: AdapterId, bytes: u64, weights: Weights) -> Weights {
        let (now, mut state) = (self.clock.tick(), self.state());
        if let Some(known) = state.find(id, now) {
            return known;
        }
        if state.fits(bytes) {
            state.bytes += bytes;
            let loaded = Loaded { weights: Arc::clone(&weights), bytes, used: now, pinned: false };
            state.adapters.insert(id, loaded);
        }
        weights
    }

    /// Gives up adapters that nobody uses, the longest unused before others, until so many bytes more fit.
    pub fn make_room(&self, bytes: u64) {
        let mut state = self.state();
        while !state.fits(bytes) && state.evict(u64::MAX) {}
    }

    /// Gives up the adapter used longest ago of those that nobody uses, if that was before `before`.
    pub fn evict(&self, before: u64) -> bool {
        self.state().evict(before)
    }

    /// Keeps an adapter in memory for good, if it is there.
    pub fn pin(&self, id: AdapterId) {
        self.state().adapters.get_mut(&id).into_iter().for_each(|loaded| loaded.pinned = true);
    }

    /// Forgets an adapter; whoever uses it keeps it until then.
    pub fn remove(&self, id: AdapterId) {
        self.state().remove(id);
    }

    /// What they take.
    pub fn bytes(&self) -> u64 {
        self.state().bytes
    }

    /// What they take beyond their own memory.
    pub fn borrowed_bytes(&self) -> u64 {
        let state = self.state();
        state.bytes.saturating_sub(state.own)
    }

    /// What those that cannot go take beyond their own memory.
    pub fn fixed_borrowed_bytes(&self) -> u64 {
        let state = self.state();
        state.bytes_left(u64::MAX).saturating_sub(state.own)
    }

    /// They may take so many bytes beyond their own.
    pub fn lend(&self, bytes: u64) {
        self.state().lent = bytes;
    }

    /// The same with fewer bytes, for which adapters go that nobody uses and that were used before `before`. Where that is not
    /// enough nothing changes, so that none goes in vain.
    pub fn shrink(&self, lent: u64, before: u64) -> bool {
        let mut state = self.state();
        let most = state.own.saturating_add(lent);
        if state.bytes_left(before) > most {
            return false;
        }
        while state.bytes > most && state.evict(before) {}
        state.lent = lent;
        true
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn find(&mut self, id: AdapterId, now: u64) -> Option<Weights> {
        let loaded = self.adapters.get_mut(&id)?;
        loaded.used = now;
        Some(Arc::clone(&loaded.weights))
    }

    fn fits(&self, bytes: u64) -> bool {
        self.bytes.saturating_add(bytes) <= self.own.saturating_add(self.lent)
    }

    fn evict(&mut self, before: u64) -> bool {
        let may_go = self.adapters.iter().filter(|(_, loaded)| loaded.may_go(before));
        let oldest = may_go.min_by_key(|(_, loaded)| loaded.used).map(|(id, _)| *id);
        oldest.is_some_and(|id| self.remove(id))
    }

    fn remove(&mut self, id: AdapterId) -> bool {
        let removed = self.adapters.remove(&id);
        self.bytes -= removed.as_ref().map_or(0, |loaded| loaded.bytes);
        removed.is_some()
    }

    /// What is left when all have gone that may.
    fn bytes_left(&self, before: u64) -> u64 {
        self.adapters.values().filter(|loaded| !loaded.may_go(before)).map(|loaded| loaded.bytes).sum()
    }
}

impl Loaded {
    fn may_go(&self, before: u64) -> bool {
        !self.pinned && self.used < before && Arc::strong_count(&self.weights) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> AdapterId {
        AdapterId([number; 32])
    }

    /// Adapters of ten bytes, as if each was used before the next.
    fn adapters(own: u64, numbers: &[u8]) -> ResidentAdapters {
        let adapters = ResidentAdapters::new(own);
        numbers.iter().for_each(|number| _ = adapters.keep(id(*number), 10, Arc::new(*number)));
        adapters
    }

    fn check(adapters: &ResidentAdapters, expected: &[u8]) {
        let found: Vec<u8> = (0..10).filter(|number| adapters.has(id(*number))).collect();
        assert_eq!((found.as_slice(), adapters.bytes()), (expected, 10 * expected.len() as u64));
    }

    #[test]
    fn what_is_used_or_pinned_stays() {
        let adapters = adapters(40, &[1, 2, 3, 4, 5]);
        check(&adapters, &[1, 2, 3, 4]);
        adapters.pin(id(1));
        let weights = adapters.find(id(2));
        adapters.make_room(10);
        check(&adapters, &[1, 2, 4]);
        adapters.make_room(30);
        check(&adapters, &[1, 2]);
        drop(weights);
        adapters.make_room(30);
        check(&adapters, &[1]);
    }

    #[test]
    fn one_adapter_is_in_memory_once() {
        let adapters = adapters(40, &[1]);
        let first = adapters.find(id(1)).expect("it fits");
        let second = adapters.keep(id(1), 10, Arc::new(7u8));
        assert!(Arc::ptr_eq(&first, &second));
        check(&adapters, &[1]);
    }

    #[test]
    fn none_goes_in_vain() {
        let adapters = ResidentAdapters::new(20);
        adapters.lend(20);
        let used = [1, 2, 3].map(|number| adapters.keep(id(number), 10, Arc::new(number)));
        adapters.keep(id(4), 10, Arc::new(4u8));
        assert_eq!((adapters.borrowed_bytes(), adapters.fixed_borrowed_bytes()), (20, 10));
        assert!(!adapters.shrink(0, u64::MAX), "three are in use");
        check(&adapters, &[1, 2, 3, 4]);
        assert!(!adapters.shrink(10, 1), "the fourth was used later");
        assert!(adapters.shrink(10, u64::MAX));
        check(&adapters, &[1, 2, 3]);
        assert!(!adapters.fits(1));
        drop(used);
        assert!(adapters.shrink(0, u64::MAX));
        check(&adapters, &[2, 3]);
    }
}
