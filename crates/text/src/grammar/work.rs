//! How much work constraints have been, counted and not timed.

use std::sync::atomic::{AtomicU64, Ordering};

use llguidance::earley::ParserStats;

/// The work of all constraints of a [`GrammarCompiler`](super::GrammarCompiler) so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FormatWork {
    /// Tokens that answers were advanced by.
    pub tokens: u64,
    /// Masks that a parser had to compute, because more than one token could come.
    pub masks: u64,
    /// Parser items of all these masks; the most of one mask is a limit.
    pub items: u64,
    /// Bytes of forced text that were tokenised.
    pub tokenized_bytes: u64,
}

/// The counters behind it, shared by the constraints.
#[derive(Default)]
pub(super) struct WorkCounters {
    tokens: AtomicU64,
    masks: AtomicU64,
    items: AtomicU64,
    tokenized_bytes: AtomicU64,
}

impl WorkCounters {
    pub(super) fn count_token(&self) {
        self.tokens.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_mask(&self, stats: Option<&ParserStats>) {
        self.masks.fetch_add(1, Ordering::Relaxed);
        self.items.fetch_add(stats.map_or(0, |stats| stats.all_items as u64), Ordering::Relaxed);
    }

    pub(super) fn count_tokenized(&self, bytes: usize) {
        self.tokenized_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> FormatWork {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FormatWork {
            tokens: read(&self.tokens),
            masks: read(&self.masks),
            items: read(&self.items),
            tokenized_bytes: read(&self.tokenized_bytes),
        }
    }
}
