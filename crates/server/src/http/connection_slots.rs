//! Slots for connections. When all are taken, the connection that has been idle longest gives up its own.
//!
//! Otherwise clients that connect and send nothing, or one byte at a time, would keep everybody else out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A fixed number of slots.
pub(crate) struct ConnectionSlots {
    capacity: usize,
    state: Mutex<State>,
    /// Notified when the last slot becomes free.
    free: Notify,
}

#[derive(Default)]
struct State {
    taken: usize,
    clock: u64,
    /// Evicts connections without a request, by when they became idle.
    idle: BTreeMap<u64, Arc<Notify>>,
}

/// The slot of one connection.
pub(crate) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    /// Notified when another connection needs the slot.
    evict: Arc<Notify>,
    /// When it last became idle.
    idle_since: Mutex<u64>,
}

/// A request under way; its connection keeps its slot meanwhile.
pub(crate) struct Busy {
    slot: Arc<ConnectionSlot>,
}

impl ConnectionSlots {
    pub(crate) fn new(capacity: usize) -> ConnectionSlots {
        ConnectionSlots { capacity: capacity.max(1), state: Mutex::default(), free: Notify::new() }
    }

    /// A slot for a connection; `None` when all are taken by connections with requests.
    pub(crate) fn take(self: &Arc<ConnectionSlots>) -> Option<Arc<ConnectionSlot>> {
        let mut state = self.state();
        if state.taken == self.capacity {
            let (_, oldest) = state.idle.pop_first()?;
            // The notification is kept for a connection that does not wait for it yet.
            oldest.notify_one();
            state.taken -= 1;
        }
        state.taken += 1;
        let evict = Arc::new(Notify::new());
        let idle_since = state.add_idle(&evict);
        Some(Arc::new(ConnectionSlot { slots: Arc::clone(self), evict, idle_since: Mutex::new(idle_since) }))
    }

    /// Waits until every slot is free.
    pub(crate) async fn all_free(&self) {
        loop {
            let free = self.free.notified();
            if self.state().taken == 0 {
                return;
            }
            free.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add_idle(&mut self, evict: &Arc<Notify>) -> u64 {
        self.clock += 1;
        self.idle.insert(self.clock, Arc::clone(evict));
        self.clock
    }
}

impl ConnectionSlot {
    /// A request has arrived. Connections have one at a time.
    pub(crate) fn busy(self: &Arc<ConnectionSlot>) -> Busy {
        self.slots.state().idle.remove(&self.idle_since());
        Busy { slot: Arc::clone(self) }
    }

    /// Waits until another connection needs the slot.
    pub(crate) async fn evicted(&self) {
        self.evict.notified().await;
    }

    fn idle_since(&self) -> MutexGuard<'_, u64> {
        self.idle_since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        *self.slot.idle_since() = self.slot.slots.state().add_idle(&self.slot.evict);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let idle_since = *self.idle_since();
        let mut state = self.slots.state();
        // An evicted connection has no slot any more.
        if state.idle.remove(&idle_since).is_some() {
            state.taken -= 1;
        }
        if state.taken == 0 {
            self.slots.free.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn idle_connections_make_room_and_busy_ones_stay() {
        let slots = Arc::new(ConnectionSlots::new(2));
        let (first, second) = (slots.take().unwrap(), slots.take().unwrap());
        let answer = first.busy();
        let third = slots.take().expect("the second is idle");
        second.evicted().await;
        drop(second);
        let other = third.busy();
        assert!(slots.take().is_none(), "both have requests");
        drop((answer, first));
        let fourth = slots.take().expect("the first has left");
        drop(other);
        // The third has just been answered, so the fourth has been idle longer.
        let fifth = slots.take().unwrap();
        fourth.evicted().await;
        drop((third, fourth));
        assert_eq!(slots.state().taken, 1);
        drop(fifth);
        slots.all_free().await;
        assert!(slots.state().idle.is_empty());
    }
}
