//! A compiled format, shared by all answers that have not begun, and the bytes that all of them take.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use llguidance::Matcher;

/// A matcher at its first step.
pub(super) struct Compiled {
    matcher: Matcher,
    bytes: usize,
    held: Arc<AtomicUsize>,
}

impl Compiled {
    /// Counts among what is held until it is dropped.
    pub(super) fn new(matcher: Matcher, bytes: usize, held: &Arc<AtomicUsize>) -> Compiled {
        held.fetch_add(bytes, Ordering::Relaxed);
        Compiled { matcher, bytes, held: Arc::clone(held) }
    }

    /// A matcher for one answer. A plain clone would share its tables, and with them the limits on their size.
    pub(super) fn begin(&self) -> Matcher {
        self.matcher.deep_clone()
    }
}

impl Drop for Compiled {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
