//! A value that threads share, and wait for.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use super::Clock;

/// A value behind a lock, with a way to wait until it changes or until a time has come.
///
/// In a simulation, whatever is locked while its thread waits for something else has to be a monitor: the clock does
/// not know who waits for another lock.
#[derive(Default)]
pub struct Monitor<T> {
    clock: Clock,
    value: Mutex<T>,
    changed: Condvar,
}

/// The value for as long as this is held.
pub struct Guard<'a, T> {
    monitor: &'a Monitor<T>,
    /// Nothing only while it is dropped.
    value: Option<MutexGuard<'a, T>>,
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
    pub fn lock(&self) -> Guard<'_, T> {
        let Some(scheduler) = &self.clock.0 else {
            return self.guard(self.value.lock().unwrap_or_else(PoisonError::into_inner));
        };
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            scheduler.wait(Some(self.lock_address()), None);
        }
    }

    /// The value, unless it is locked.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        match self.value.try_lock() {
            Ok(value) => Some(self.guard(value)),
            Err(TryLockError::Poisoned(poisoned)) => Some(self.guard(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Releases the lock until somebody notifies, or until `deadline`; it may also return earlier.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that waits for a condition")]
    pub fn wait<'a>(&'a self, mut guard: Guard<'a, T>, deadline: Option<Instant>) -> Guard<'a, T> {
        if let Some(scheduler) = &self.clock.0 {
            drop(guard);
            scheduler.wait(Some(self.address()), deadline);
            return self.lock();
        }
        guard.value = guard.value.take().map(|value| match deadline {
            None => self.changed.wait(value).unwrap_or_else(PoisonError::into_inner),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(self.clock.now());
                self.changed.wait_timeout(value, left).unwrap_or_else(PoisonError::into_inner).0
            }
        });
        guard
    }

    /// Wakes everyone who waits.
    pub fn notify(&self) {
        match &self.clock.0 {
            None => self.changed.notify_all(),
            Some(scheduler) => scheduler.notify(self.address()),
        }
    }

    fn guard<'a>(&'a self, value: MutexGuard<'a, T>) -> Guard<'a, T> {
        Guard { monitor: self, value: Some(value) }
    }

    /// What a simulation calls the changes of this value; whoever waits borrows the monitor, so it stays where it is.
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// What it calls the lock.
    fn lock_address(&self) -> usize {
        self.address() + 1
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_deref().expect("it is there until the guard is dropped")
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_deref_mut().expect("it is there until the guard is dropped")
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        drop(self.value.take());
        if let Some(scheduler) = &self.monitor.clock.0 {
            scheduler.notify(self.monitor.lock_address());
        }
    }
}
