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

/// What can happen to the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheChange {
    /// Cached pages were given up for others.
    PagesEvicted,
    /// Jobs were put back into the queue, to free their pages.
    JobsPreempted,
    /// Tokens were planned once more after that.
    TokensRecomputed,
    /// Pages were lent to adapters.
    PagesLent,
    /// Pages came back from adapters.
    PagesReturned,
    /// Everything was forgotten after a panic, and begun again.
    Restarted,
}

/// The entries, the oldest first.
#[derive(Debug, Default)]
pub(super) struct CacheLog(VecDeque<CacheEvent>);

impl CacheChange {
    /// What people and programs call it.
    pub fn name(self) -> &'static str {
        match self {
            CacheChange::PagesEvicted => "pages evicted",
            CacheChange::JobsPreempted => "jobs preempted",
            CacheChange::TokensRecomputed => "tokens recomputed",
            CacheChange::PagesLent => "pages lent",
            CacheChange::PagesReturned => "pages returned",
            CacheChange::Restarted => "restarted",
        }
    }
}

impl CacheLog {
    /// Notes what differs between two moments, of which the second is `at`.
    pub(super) fn note(&mut self, at: f64, before: &Snapshot, now: &Snapshot) {
        let changes = [
            (CacheChange::PagesEvicted, before.evictions, now.evictions),
            (CacheChange::JobsPreempted, before.preemptions, now.preemptions),
            (CacheChange::TokensRecomputed, before.recomputed_tokens, now.recomputed_tokens),
            (CacheChange::PagesLent, before.pages_lent, now.pages_lent),
            (CacheChange::PagesReturned, now.pages_lent, before.pages_lent),
            (CacheChange::Restarted, before.restarts, now.restarts),
        ];
        for (change, less, more) in changes {
            if more > less {
                self.add(CacheEvent { at, change, count: more - less });
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
        let expected = [
            CacheEvent { at: 2.0, change: CacheChange::PagesLent, count: 3 },
            CacheEvent { at: 9.0, change: CacheChange::PagesReturned, count: 4 },
        ];
        assert_eq!(log.events(), expected);
    }

    #[test]
    fn the_oldest_entries_go_first() {
        let mut log = CacheLog::default();
        (0..1000).for_each(|second| log.note(f64::from(second), &evicted(0), &evicted(1)));
        assert_eq!((log.events().len(), log.events()[0].at), (MOST_EVENTS, 744.0));
    }
}
