//! A queue from one thread to another, with a time until which the reader waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::{Clock, Monitor};

struct Queue<T> {
    items: VecDeque<T>,
    most: usize,
    has_sender: bool,
    has_receiver: bool,
}

/// The end that sends.
pub(crate) struct Sender<T>(Arc<Monitor<Queue<T>>>);

/// The end that receives.
pub(crate) struct Receiver<T>(Arc<Monitor<Queue<T>>>);

/// Why nothing was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecvError {
    /// Nothing came in time.
    TimedOut,
    /// Nothing will come any more.
    Disconnected,
}

/// A queue of at most `most` items.
pub(crate) fn channel<T>(clock: &Clock, most: usize) -> (Sender<T>, Receiver<T>) {
    let queue = Queue { items: VecDeque::new(), most, has_sender: true, has_receiver: true };
    let queue = Arc::new(Monitor::new(clock, queue));
    (Sender(Arc::clone(&queue)), Receiver(queue))
}

impl<T> Sender<T> {
    /// Puts an item in; `false` if the queue is full. An item that nobody will receive is dropped.
    pub(crate) fn try_send(&self, item: T) -> bool {
        self.offer(item).is_ok()
    }

    /// The same, with the item back if the queue is full.
    pub(crate) fn offer(&self, item: T) -> Result<(), T> {
        let mut queue = self.0.lock();
        if !queue.has_receiver {
            return Ok(());
        }
        if queue.items.len() >= queue.most {
            return Err(item);
        }
        queue.items.push_back(item);
        self.0.notify();
        Ok(())
    }

    /// Puts an item in as soon as there is room; `false` if nobody will receive it.
    pub(crate) fn send(&self, item: T) -> bool {
        let mut queue = self.0.lock();
        while queue.has_receiver && queue.items.len() >= queue.most {
            queue = self.0.wait(queue, None);
        }
        if queue.has_receiver {
            queue.items.push_back(item);
            self.0.notify();
        }
        queue.has_receiver
    }
}

impl<T> Receiver<T> {
    /// Waits for the next item, at most until `deadline`.
    pub(crate) fn receive(&self, deadline: Option<Instant>) -> Result<T, RecvError> {
        let mut queue = self.0.lock();
        loop {
            if let Some(item) = queue.items.pop_front() {
                self.0.notify();
                return Ok(item);
            }
            if !queue.has_sender {
                return Err(RecvError::Disconnected);
            }
            if deadline.is_some_and(|deadline| self.0.clock().now() >= deadline) {
                return Err(RecvError::TimedOut);
            }
            queue = self.0.wait(queue, deadline);
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.lock().has_sender = false;
        self.0.notify();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.has_receiver = false;
        let unread = std::mem::take(&mut queue.items);
        drop(queue);
        self.0.notify();
        // Outside the lock: items may hold ends of other queues.
        drop(unread);
    }
}
