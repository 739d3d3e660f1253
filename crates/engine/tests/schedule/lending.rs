//! Cached prefixes and adapters in one pool: what was used longest ago goes, whichever it is, and each side has a reserve.

use std::sync::Arc;

use cascadia_engine::service::schedule::{Evictions, Memory, PrefixKey, Reach, ResidentAdapters, Weights};
use cascadia_model::{AdapterId, CachePages, PAGE_TOKENS, PageClass};

use crate::hash_model::{SharedModel, limits, spans};

/// Bytes of a page of the model of hashes.
const PAGE_BYTES: u64 = 8 * PAGE_TOKENS as u64;
const PAGES: u32 = 10;
/// Plans after pages were taken back, when some may be lent again.
const LONG: usize = 1000;

struct Bench {
    memory: Memory,
    adapters: ResidentAdapters,
}

impl Bench {
    /// Ten pages, of which sequences keep two, and adapters with memory of their own for one page.
    fn new() -> Bench {
        let adapters = ResidentAdapters::new(PAGE_BYTES);
        let mut memory = Memory::new(CachePages::full(PAGES), spans(|_| 0));
        memory.lend_to(adapters.clone(), Arc::new(SharedModel::new(&limits(PAGES))), 2 * PAGE_TOKENS);
        Bench { memory, adapters }
    }

    /// Computes a text of so many pages, which are cached then.
    fn compute(&mut self, text: u32, pages: usize) {
        let end = pages * PAGE_TOKENS as usize;
        let tokens = vec![text; end + 1];
        let mut holding = self.memory.reuse(PrefixKey::default(), &tokens);
        let computed = holding.tokens();
        assert_eq!(self.memory.grow(&mut holding, computed, end, Reach::Fair), end, "there is room for {pages} pages");
        self.memory.settle(&mut holding, &tokens, end);
        self.memory.release(holding);
    }

    /// Uses an adapter that takes as much as so many pages.
    fn use_adapter(&mut self, number: u8, pages: u64) -> Weights {
        let (id, bytes) = (AdapterId([number; 32]), pages * PAGE_BYTES);
        if !self.adapters.has(id) {
            self.memory.lend_for(bytes);
            self.adapters.make_room(bytes);
        }
        self.adapters.keep(id, bytes, Arc::new(number))
    }

    /// Pages that are lent, cached and free, and the adapters in memory.
    fn check(&self, expected: [u32; 3], adapters: &[u8]) {
        let pages = self.memory.pages(PageClass::Full);
        let found: Vec<u8> = (0..10).filter(|number| self.adapters.has(AdapterId([*number; 32]))).collect();
        assert_eq!(([pages.lent(), pages.cached(), pages.free()], found.as_slice()), (expected, adapters));
        assert!(self.adapters.bytes() <= PAGE_BYTES * u64::from(1 + pages.lent()));
    }
}

#[test]
fn what_was_used_longest_ago_goes_whichever_it_is() {
    let mut bench = Bench::new();
    bench.use_adapter(1, 1);
    bench.compute(1, 6);
    bench.use_adapter(2, 2);
    bench.use_adapter(3, 2);
    bench.check([4, 6, 0], &[1, 2, 3]);
    // The first adapter is older than the text, the text older than the other adapters.
    bench.use_adapter(4, 2);
    bench.check([5, 5, 0], &[2, 3, 4]);
    bench.compute(2, 1);
    bench.check([5, 5, 0], &[2, 3, 4]);
    // Now all that is cached was used after the second adapter.
    bench.compute(1, 4);
    bench.compute(3, 1);
    bench.check([4, 6, 0], &[3, 4]);
    bench.memory.begin_plan();
    bench.check([3, 6, 1], &[3, 4]);
    // Sequences have just missed pages, so adapters make room among themselves for a while.
    bench.use_adapter(5, 2);
    bench.check([3, 6, 1], &[4, 5]);
    (0..LONG).for_each(|_| bench.memory.begin_plan());
    bench.use_adapter(6, 2);
    bench.check([4, 6, 0], &[5, 6]);
    let expected = Evictions { for_sequences: 1, for_adapters: 1, forgotten: 0 };
    assert_eq!((bench.memory.evictions(), bench.memory.taken_back()), (expected, 1));
    bench.memory.forget();
    assert_eq!(bench.memory.evictions(), Evictions { forgotten: 6, ..expected });
}

#[test]
fn what_is_in_use_stays() {
    let mut bench = Bench::new();
    let used = bench.use_adapter(1, 3);
    bench.compute(1, 8);
    bench.compute(2, 3);
    bench.check([2, 8, 0], &[1]);
    assert_eq!(bench.memory.available(PageClass::Full, PrefixKey::default()), 8);
    drop(used);
    assert_eq!(bench.memory.available(PageClass::Full, PrefixKey::default()), 10);
    bench.compute(3, 1);
    bench.check([1, 9, 0], &[]);
    bench.memory.begin_plan();
    bench.check([0, 9, 1], &[]);
}

#[test]
fn what_is_available_can_be_had() {
    let mut bench = Bench::new();
    bench.use_adapter(1, 5);
    bench.compute(1, 6);
    bench.check([4, 6, 0], &[1]);
    // Two pages are left to the owner of the text: half of a fair share of all ten, once those that are lent are back.
    let other = PrefixKey { salt: 1, ..PrefixKey::default() };
    let available = bench.memory.available(PageClass::Full, other);
    let mut holding = bench.memory.nothing(other);
    let reached = bench.memory.grow(&mut holding, 0, 10 * PAGE_TOKENS as usize, Reach::Fair);
    assert_eq!((available, reached), (8, 8 * PAGE_TOKENS as usize));
}

#[test]
fn each_side_has_a_reserve() {
    let mut bench = Bench::new();
    bench.use_adapter(1, 20);
    bench.check([8, 0, 2], &[]);
    bench.memory.begin_plan();
    bench.check([0, 0, 10], &[]);
    bench.use_adapter(2, 1);
    (1..5).for_each(|text| bench.compute(text, 10));
    bench.check([0, 10, 0], &[2]);
}

#[test]
fn what_is_lent_stays_lent_after_a_panic() {
    let mut bench = Bench::new();
    bench.use_adapter(1, 3);
    bench.compute(1, 4);
    bench.check([2, 4, 4], &[1]);
    bench.memory = bench.memory.emptied();
    bench.check([2, 0, 8], &[1]);
    bench.adapters.remove(AdapterId([1; 32]));
    bench.memory.begin_plan();
    bench.check([0, 0, 10], &[]);
}
