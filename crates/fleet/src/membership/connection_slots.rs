//! A bound on connections that are being admitted at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Connections that may prove themselves at a time, and workers that may be admitted at a time.
const MOST_AT_ONCE: usize = 256;

/// Slots of which there are no more than [`MOST_AT_ONCE`].
#[derive(Clone, Default)]
pub(crate) struct ConnectionSlots(Arc<AtomicUsize>);

/// A slot that is free again when this is dropped.
pub(crate) struct ConnectionSlot(ConnectionSlots);

impl ConnectionSlots {
    /// A slot, if one is free.
    pub(crate) fn take(&self) -> Option<ConnectionSlot> {
        let slot = ConnectionSlot(self.clone());
        (self.0.fetch_add(1, Ordering::AcqRel) < MOST_AT_ONCE).then_some(slot)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}
