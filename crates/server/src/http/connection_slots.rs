//! Slots for connections. When all are taken, the connection that has been idle longest gives up its own.
//!
//! Otherwise clients that connect and send nothing, or one byte at a time, would keep everybody else out.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A fixed number of slots. A connection has its slot until it is closed, also when it was told to close.
pub(crate) struct ConnectionSlots {
    capacity: usize,
    state: Mutex<State>,
    /// Notified whenever a slot becomes free.
    freed: Notify,
}

#[derive(Default)]
struct State {
    /// Connections that are open.
    taken: usize,
    /// Of those, the ones that were told to close.
    closing: usize,
    clock: u64,
    /// Connections without a request, by when they became idle.
    idle: BTreeMap<u64, Arc<Eviction>>,
}

/// How a connection is told to close.
#[derive(Default)]
struct Eviction {
    /// Changed and read with the state locked.
    is_told: AtomicBool,
    notify: Notify,
}

/// The slot of one connection.
pub(crate) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    eviction: Arc<Eviction>,
    /// When it last became idle.
    idle_since: Mutex<u64>,
}

/// A request under way; its connection keeps its slot meanwhile.
pub(crate) struct Busy {
    slot: Arc<ConnectionSlot>,
}

impl ConnectionSlots {
    pub(crate) fn new(capacity: usize) -> ConnectionSlots {
        ConnectionSlots { capacity: capacity.max(1), state: Mutex::default(), freed: Notify::new() }
    }

    /// A slot for a connection, once one that was told to close has closed; `None` when all are taken by connections
    /// with requests.
    pub(crate) async fn take(self: &Arc<ConnectionSlots>) -> Option<Arc<ConnectionSlot>> {
        loop {
            // Before it is looked, so that no slot that becomes free meanwhile is missed.
            let freed = self.freed.notified();
            {
                let mut state = self.state();
                if state.taken < self.capacity {
                    return Some(self.occupy(&mut state));
                }
                if state.closing == 0 {
                    let (_, oldest) = state.idle.pop_first()?;
                    oldest.is_told.store(true, Ordering::Relaxed);
                    // The notification is kept for a connection that does not wait for it yet.
                    oldest.notify.notify_one();
                    state.closing += 1;
                }
            }
            freed.await;
        }
    }

    fn occupy(self: &Arc<ConnectionSlots>, state: &mut State) -> Arc<ConnectionSlot> {
        state.taken += 1;
        let eviction = Arc::new(Eviction::default());
        let idle_since = Mutex::new(state.add_idle(&eviction));
        Arc::new(ConnectionSlot { slots: Arc::clone(self), eviction, idle_since })
    }

    /// Waits until every slot is free.
    pub(crate) async fn all_free(&self) {
        loop {
            let freed = self.freed.notified();
            if self.state().taken == 0 {
                return;
            }
            freed.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add_idle(&mut self, eviction: &Arc<Eviction>) -> u64 {
        self.clock += 1;
        self.idle.insert(self.clock, Arc::clone(eviction));
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
        self.eviction.notify.notified().await;
    }

    fn idle_since(&self) -> MutexGuard<'_, u64> {
        self.idle_since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.slot.slots.state();
        // Its request came when it was told to close already.
        if !self.slot.eviction.is_told.load(Ordering::Relaxed) {
            *self.slot.idle_since() = state.add_idle(&self.slot.eviction);
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let idle_since = *self.idle_since();
        let mut state = self.slots.state();
        state.idle.remove(&idle_since);
        state.taken -= 1;
        if self.eviction.is_told.load(Ordering::Relaxed) {
            state.closing -= 1;
        }
        self.slots.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// The slot that is there at once, if there is one.
    fn now(slots: &Arc<ConnectionSlots>) -> Poll<Option<Arc<ConnectionSlot>>> {
        pin!(slots.take()).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn taken(slots: &Arc<ConnectionSlots>) -> Arc<ConnectionSlot> {
        match now(slots) {
            Poll::Ready(Some(slot)) => slot,
            _ => panic!("a slot is free"),
        }
    }

    /// How many are open, and how many of them were told to close.
    fn counts(slots: &Arc<ConnectionSlots>) -> (usize, usize) {
        let state = slots.state();
        (state.taken, state.closing)
    }

    #[tokio::test]
    async fn idle_connections_make_room_and_busy_ones_stay() {
        let slots = Arc::new(ConnectionSlots::new(2));
        let (first, second) = (taken(&slots), taken(&slots));
        let answer = first.busy();
        assert!(now(&slots).is_pending(), "the second is idle, and open until it has closed");
        second.evicted().await;
        drop(second);
        let third = taken(&slots);
        let other = third.busy();
        assert!(matches!(now(&slots), Poll::Ready(None)), "both have requests");
        drop((answer, first));
        let fourth = taken(&slots);
        drop(other);
        // The third has just been answered, so the fourth has been idle longer.
        assert!(now(&slots).is_pending());
        fourth.evicted().await;
        drop((third, fourth));
        assert_eq!(counts(&slots), (0, 0));
        slots.all_free().await;
        assert!(slots.state().idle.is_empty());
    }

    #[tokio::test]
    async fn there_are_never_more_connections_than_slots() {
        let slots = Arc::new(ConnectionSlots::new(1));
        let mut open = taken(&slots);
        for _ in 0..3 {
            assert!(now(&slots).is_pending() && now(&slots).is_pending(), "one is told to close, once");
            // Its request arrives at the same time, and is answered before it closes.
            drop(open.busy());
            assert!(now(&slots).is_pending());
            assert_eq!(counts(&slots), (1, 1));
            drop(open);
            open = taken(&slots);
            assert_eq!(counts(&slots), (1, 0));
        }
        drop(open);
        assert_eq!(counts(&slots), (0, 0));
        assert!(slots.state().idle.is_empty());
    }
}
