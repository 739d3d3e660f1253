//! ConnectionSlots for connections. When all are taken, the one that has waited longest for a request gives up its own.
//!
//! Otherwise clients that connect and say nothing, or one byte at a time, would keep everybody else out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// All places.
pub(crate) struct ConnectionSlots {
    most: usize,
    state: Mutex<State>,
    /// Rings when the last place has become free.
    free: Notify,
}

#[derive(Default)]
struct State {
    taken: usize,
    turns: u64,
    /// Connections without a request under way, by when they began to wait.
    quiet: BTreeMap<u64, Arc<Notify>>,
}

/// The place of one connection.
pub(crate) struct ConnectionSlot {
    places: Arc<ConnectionSlots>,
    /// Rings when another connection needs the place.
    leave: Arc<Notify>,
    /// When it last began to wait for a request.
    turn: Mutex<u64>,
}

/// A request under way; its connection keeps its place meanwhile.
pub(crate) struct Busy {
    place: Arc<ConnectionSlot>,
}

impl ConnectionSlots {
    pub(crate) fn new(most: usize) -> ConnectionSlots {
        ConnectionSlots { most: most.max(1), state: Mutex::default(), free: Notify::new() }
    }

    /// A place for a connection; `None` when all are taken by connections with requests.
    pub(crate) fn take(self: &Arc<ConnectionSlots>) -> Option<Arc<ConnectionSlot>> {
        let mut state = self.state();
        if state.taken == self.most {
            let (_, longest) = state.quiet.pop_first()?;
            // Kept for a connection that does not listen yet.
            longest.notify_one();
            state.taken -= 1;
        }
        state.taken += 1;
        let leave = Arc::new(Notify::new());
        let turn = state.wait(&leave);
        Some(Arc::new(ConnectionSlot { places: Arc::clone(self), leave, turn: Mutex::new(turn) }))
    }

    /// Waits until every place is free.
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
    fn wait(&mut self, leave: &Arc<Notify>) -> u64 {
        self.turns += 1;
        self.quiet.insert(self.turns, Arc::clone(leave));
        self.turns
    }
}

impl ConnectionSlot {
    /// A request has come. Connections have one at a time.
    pub(crate) fn busy(self: &Arc<ConnectionSlot>) -> Busy {
        self.places.state().quiet.remove(&self.turn());
        Busy { place: Arc::clone(self) }
    }

    /// Waits until another connection needs the place.
    pub(crate) async fn told_to_leave(&self) {
        self.leave.notified().await;
    }

    fn turn(&self) -> MutexGuard<'_, u64> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        *self.place.turn() = self.place.places.state().wait(&self.place.leave);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let turn = *self.turn();
        let mut state = self.places.state();
        // One that was told to leave has no place any more.
        if state.quiet.remove(&turn).is_some() {
            state.taken -= 1;
        }
        if state.taken == 0 {
            self.places.free.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_quiet_make_room_and_the_busy_stay() {
        let places = Arc::new(ConnectionSlots::new(2));
        let (first, second) = (places.take().unwrap(), places.take().unwrap());
        let answer = first.busy();
        let third = places.take().expect("the second says nothing");
        second.told_to_leave().await;
        drop(second);
        let other = third.busy();
        assert!(places.take().is_none(), "both have requests");
        drop((answer, first));
        let fourth = places.take().expect("the first has left");
        drop(other);
        // The third has just been answered, so the fourth has waited longer.
        let fifth = places.take().unwrap();
        fourth.told_to_leave().await;
        drop((third, fourth));
        assert_eq!(places.state().taken, 1);
        drop(fifth);
        places.all_free().await;
        assert!(places.state().quiet.is_empty());
    }
}
