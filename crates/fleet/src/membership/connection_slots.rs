//! A bound on connections that are being admitted at a time, and on those of one machine among them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Workers that may be admitted at a time.
const MOST_AT_ONCE: usize = 256;
/// Connections of one machine among them: more than it has shards.
const MOST_OF_ONE: usize = 32;

/// Slots of which there are no more than [`MOST_AT_ONCE`], and [`MOST_OF_ONE`] for each machine.
#[derive(Clone, Default)]
pub(crate) struct ConnectionSlots(Arc<Mutex<HashMap<String, usize>>>);

/// A slot that is free again when this is dropped.
pub(crate) struct ConnectionSlot {
    slots: ConnectionSlots,
    holder: String,
}

impl ConnectionSlots {
    /// A slot for a machine, if one is free for it.
    pub(crate) fn take(&self, holder: &str) -> Option<ConnectionSlot> {
        let mut held = self.held();
        let own = held.get(holder).copied().unwrap_or_default();
        if own >= MOST_OF_ONE || held.values().sum::<usize>() >= MOST_AT_ONCE {
            return None;
        }
        held.insert(holder.to_owned(), own + 1);
        Some(ConnectionSlot { slots: self.clone(), holder: holder.to_owned() })
    }

    fn held(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut held = self.slots.held();
        if let Some(own) = held.get_mut(&self.holder) {
            *own -= 1;
        }
        // Who holds nothing is forgotten, whatever name it came with.
        held.retain(|_, own| *own > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_machine_holds_all_slots_and_all_together_hold_no_more_than_there_are() {
        let slots = ConnectionSlots::default();
        let take = |holder: &str| (0..1000).map_while(|_| slots.take(holder)).collect::<Vec<_>>();
        let first = take("first");
        assert_eq!((first.len(), take("second").len()), (MOST_OF_ONE, MOST_OF_ONE));
        let all: Vec<_> = (0..100).flat_map(|number| take(&format!("node-{number}"))).collect();
        assert_eq!(first.len() + all.len(), MOST_AT_ONCE);
        drop((first, all));
        assert!(slots.held().is_empty());
    }
}
