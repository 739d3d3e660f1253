//! The connections that a coordinator receives, one after the other.

use std::time::Instant;

use crate::Arrival;
use crate::clock::{Clock, Receiver, Sender, channel};

/// Connections in the order in which they came; an iterator that waits for the next one.
pub struct Arrivals(Receiver<Arrival>);

impl Arrivals {
    /// A queue of connections, and where they are put in. Listeners limit how many there are.
    pub(super) fn queue() -> (Sender<Arrival>, Arrivals) {
        let (sender, receiver) = channel(Clock::system(), usize::MAX);
        (sender, Arrivals(receiver))
    }

    /// The next one; nothing if none comes until `deadline`, or ever.
    pub(super) fn next_before(&self, deadline: Instant) -> Option<Arrival> {
        self.0.receive(Some(deadline)).ok()
    }
}

impl Iterator for Arrivals {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        self.0.receive(None).ok()
    }
}
