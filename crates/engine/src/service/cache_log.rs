//! What happened to the KV cache lately, for those who wonder why answers take long.

use std::collections::VecDeque;

use super::Snapshot;

/// Entries that are remembered; the oldest go first.
const MOST_EVENTS: usize = 256;
/// Changes of one kind within so many seconds are one entry: a cache that is too small has many in every step.
const TOGETHER_SECONDS: f64 = 1.0;

/// Something that happened to the cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheEvent {
    /// When it began to, in seconds since the service started.
    pub at: f64,
    /// What it was.
    pub change: CacheChange,
    /// How many pages, jobs or tokens.
    pub count: u64,
}

/// What can happen to the cache, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheChange {
    /// Cached pages were given up for those of requests.
    EvictedForRequests,
    /// Cached pages were given up for adapters.
    EvictedForAdapters,
    /// Cached pages went because their content was lost.
    EvictedAsLost,
    /// Jobs were put back into the queue, to free their pages.
    PreemptedForPages,
    /// Jobs were put back into the queue, because others have a right to their places.
    PreemptedForTurns,
    /// Tokens were planned once more, because their pages had been given up.
    TokensRecomputed,
    /// Pages were lent to adapters.
    PagesLent,
    /// Requests took pages back from adapters.
    TakenBack,
    /// Adapters did not need pages any more.
    Returned,
    /// Everything was forgotten after a panic, and begun again.
    Restarted,
}

/// The entries, the oldest first.
#[derive(Debug, Default)]
pub(super) struct CacheLog(VecDeque<CacheEvent>);

impl CacheChange {
    /// What people and programs call it.
    pub fn name(self) -> &'static str {
        self.words().0
    }

    /// Why it happened. No text and no tenant is named: everyone who may use the server sees it.
    pub fn reason(self) -> &'static str {
        self.words().1
    }

    fn words(self) -> (&'static str, &'static str) {
        match self {
            CacheChange::EvictedForRequests => ("pages evicted", "requests needed pages"),
            CacheChange::EvictedForAdapters => ("pages evicted", "adapters needed memory"),
            CacheChange::EvictedAsLost => ("pages evicted", "their content was lost"),
            CacheChange::PreemptedForPages => ("jobs preempted", "other jobs needed their pages"),
            CacheChange::PreemptedForTurns => ("jobs preempted", "tenants that run less come first"),
            CacheChange::TokensRecomputed => ("tokens recomputed", "their pages had been given up"),
            CacheChange::PagesLent => ("pages lent", "adapters needed memory"),
            CacheChange::TakenBack => ("pages returned", "requests needed pages"),
            CacheChange::Returned => ("pages returned", "adapters did not need them any more"),
            CacheChange::Restarted => ("restarted", "a panic was caught"),
        }
    }
}

impl CacheLog {
    /// Notes what differs between two moments, of which the second is `at`.
    pub(super) fn note(&mut self, at: f64, before: &Snapshot, now: &Snapshot) {
        let grown = |counter: fn(&Snapshot) -> u64| counter(now).saturating_sub(counter(before));
        let (for_adapters, as_lost) = (grown(|s| s.evicted_for_adapters), grown(|s| s.evicted_as_lost));
        let (made_way, taken_back) = (grown(|s| s.jobs_made_way), grown(|s| s.pages_taken_back));
        // What was lent and came back between the two moments is not seen.
        let left = before.pages_lent.saturating_sub(taken_back);
        let changes = [
            (CacheChange::EvictedForRequests, grown(|s| s.evictions).saturating_sub(for_adapters + as_lost)),
            (CacheChange::EvictedForAdapters, for_adapters),
            (CacheChange::EvictedAsLost, as_lost),
            (CacheChange::PreemptedForPages, grown(|s| s.preemptions).saturating_sub(made_way)),
            (CacheChange::PreemptedForTurns, made_way),
            (CacheChange::TokensRecomputed, grown(|s| s.recomputed_tokens)),
            (CacheChange::PagesLent, now.pages_lent.saturating_sub(left)),
            (CacheChange::TakenBack, taken_back),
            (CacheChange::Returned, left.saturating_sub(now.pages_lent)),
            (CacheChange::Restarted, grown(|s| s.restarts)),
        ];
        for (change, count) in changes {
            if count > 0 {
                self.add(CacheEvent { at, change, count });
            }
        }
    }

    /// All of them.
    pub(super) fn events(&self) -> Vec<CacheEvent> {
        self.0.iter().copied().collect()
    }

    fn add(&mut self, event: CacheEvent) {
        let mut recent = self.0.iter_mut().rev().take_while(|known| event.at - known.at < TOGETHER_SECONDS);
        if let Some(known) = recent.find(|known| known.change == event.change) {
            known.count += event.count;
            return;
        }
        if self.0.len() == MOST_EVENTS {
            self.0.pop_front();
        }
        self.0.push_back(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evicted(evictions: u64) -> Snapshot {
        Snapshot { evictions, ..Snapshot::default() }
    }

    #[test]
    fn what_happens_often_is_one_entry_a_second() {
        let mut log = CacheLog::default();
        for step in 0..100u32 {
            log.note(f64::from(step) * 0.03, &evicted(u64::from(step)), &evicted(u64::from(step) + 2));
        }
        let events = log.events();
        assert_eq!(events.len(), 3);
        assert_eq!(events.iter().map(|event| event.count).sum::<u64>(), 200);
    }

    #[test]
    fn pages_are_lent_and_returned() {
        let lent = |pages_lent| Snapshot { pages_lent, ..Snapshot::default() };
        let mut log = CacheLog::default();
        log.note(1.0, &lent(2), &lent(2));
        log.note(2.0, &lent(2), &lent(5));
        log.note(9.0, &lent(5), &lent(1));
        // Requests take three of the four, and one is lent anew.
        log.note(15.0, &lent(4), &Snapshot { pages_taken_back: 3, ..lent(2) });
        let expected = [
            CacheEvent { at: 2.0, change: CacheChange::PagesLent, count: 3 },
            CacheEvent { at: 9.0, change: CacheChange::Returned, count: 4 },
            CacheEvent { at: 15.0, change: CacheChange::PagesLent, count: 1 },
            CacheEvent { at: 15.0, change: CacheChange::TakenBack, count: 3 },
        ];
        assert_eq!(log.events(), expected);
    }

    #[test]
    fn reasons_are_told_apart_and_add_up() {
        let before = Snapshot { evictions: 10, evicted_for_adapters: 2, preemptions: 1, ..Snapshot::default() };
        let now = Snapshot {
            evictions: 20,
            evicted_for_adapters: 5,
            evicted_as_lost: 1,
            preemptions: 4,
            jobs_made_way: 1,
            ..before.clone()
        };
        let mut log = CacheLog::default();
        log.note(1.0, &before, &now);
        let found: Vec<_> = log.events().iter().map(|event| (event.change.reason(), event.count)).collect();
        let expected = [
            ("requests needed pages", 6),
            ("adapters needed memory", 3),
            ("their content was lost", 1),
            ("other jobs needed their pages", 2),
            ("tenants that run less come first", 1),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn the_oldest_entries_go_first() {
        let mut log = CacheLog::default();
        (0..1000).for_each(|second| log.note(f64::from(second), &evicted(0), &evicted(1)));
        assert_eq!((log.events().len(), log.events()[0].at), (MOST_EVENTS, 744.0));
    }
}
