//! Counts uses, so that things of different kinds can be compared by when they were used last.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that all who keep things by last use share. It knows no seconds: what goes first does not depend on how fast
/// a machine is.
#[derive(Clone, Debug, Default)]
pub struct UseClock(Arc<AtomicU64>);

impl UseClock {
    /// A moment after all earlier ones; the first is one.
    pub fn tick(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}
