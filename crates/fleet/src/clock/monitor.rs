//! A value that threads share, and wait for.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::Clock;

/// A value behind a lock, with a way to wait until it changes or until a time has come.
///
/// In a simulation no lock may be held by a thread that waits for something else, because the one that runs would
/// wait for it in vain.
#[derive(Default)]
pub struct Monitor<T> {
    clock: Clock,
    value: Mutex<T>,
    changed: Condvar,
}

impl<T> Monitor<T> {
    /// A value that is waited for by this clock.
    pub fn new(clock: &Clock, value: T) -> Monitor<T> {
        Monitor { clock: clock.clone(), value: Mutex::new(value), changed: Condvar::new() }
    }

    /// The clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The value. A thread that panicked while it held the lock has left it as it was between two statements, which is
    /// all that users of a monitor rely on.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases the lock until somebody notifies, or until `deadline`; it may also return earlier.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that waits for a condition")]
    pub fn wait<'a>(&'a self, guard: MutexGuard<'a, T>, deadline: Option<Instant>) -> MutexGuard<'a, T> {
        match (&self.clock.0, deadline) {
            (None, None) => self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner),
            (None, Some(deadline)) => {
                let left = deadline.saturating_duration_since(self.clock.now());
                self.changed.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0
            }
            (Some(scheduler), deadline) => {
                drop(guard);
                scheduler.wait(Some(self.address()), deadline);
                self.lock()
            }
        }
    }

    /// Wakes everyone who waits.
    pub fn notify(&self) {
        match &self.clock.0 {
            None => self.changed.notify_all(),
            Some(scheduler) => scheduler.notify(self.address()),
        }
    }

    /// Tells monitors apart in a simulation; whoever waits borrows the monitor, so it stays where it is.
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}
