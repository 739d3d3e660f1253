//! So many at a time and no more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Connections that may prove themselves at a time, and machines that may be let in at a time.
const MOST_AT_ONCE: usize = 256;

/// Places of which there are no more than [`MOST_AT_ONCE`].
#[derive(Clone, Default)]
pub(crate) struct Places(Arc<AtomicUsize>);

/// A place that is free again when this is dropped.
pub(crate) struct Place(Places);

impl Places {
    /// A place, if there is one.
    pub(crate) fn take(&self) -> Option<Place> {
        let place = Place(self.clone());
        (self.0.fetch_add(1, Ordering::AcqRel) < MOST_AT_ONCE).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}
