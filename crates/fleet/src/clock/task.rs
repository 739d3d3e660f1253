//! Threads that a clock knows of.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, Scope};
use std::time::Instant;

use super::{Clock, Monitor};

/// A thread whose result can be waited for.
pub struct Task<T>(Arc<Monitor<Option<thread::Result<T>>>>);

impl<T> Task<T> {
    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Its result once it has ended, at most until `deadline`; nothing if it has not by then, or panicked.
    pub fn join(self, deadline: Option<Instant>) -> Option<T> {
        let mut result = self.0.lock();
        while result.is_none() && deadline.is_none_or(|deadline| self.0.clock().now() < deadline) {
            result = self.0.wait(result, deadline);
        }
        result.take()?.ok()
    }
}

impl Clock {
    /// Runs something on a thread of its own.
    pub fn spawn<T: Send + 'static>(&self, run: impl FnOnce() -> T + Send + 'static) -> Task<T> {
        let (task, body) = prepare(self, run);
        match &self.0 {
            None => drop(thread::spawn(body)),
            Some(scheduler) => scheduler.start(|turn| {
                let thread = thread::spawn(move || turn.run(body));
                thread.thread().clone()
            }),
        }
        task
    }
}

/// The same for a thread that borrows. In a simulation it has to be joined before the scope ends, because a scope
/// waits for its threads without telling the clock.
pub(crate) fn spawn_scoped<'scope, T: Send + 'scope>(
    clock: &Clock,
    scope: &'scope Scope<'scope, '_>,
    run: impl FnOnce() -> T + Send + 'scope,
) -> Task<T> {
    let (task, body) = prepare(clock, run);
    match &clock.0 {
        None => drop(scope.spawn(body)),
        Some(scheduler) => scheduler.start(|turn| {
            let thread = scope.spawn(move || turn.run(body));
            thread.thread().clone()
        }),
    }
    task
}

fn prepare<T, F: FnOnce() -> T>(clock: &Clock, run: F) -> (Task<T>, impl FnOnce() + use<T, F>) {
    let result = Arc::new(Monitor::new(clock, None));
    let task = Task(Arc::clone(&result));
    let body = move || {
        let ended = catch_unwind(AssertUnwindSafe(run));
        *result.lock() = Some(ended);
        result.notify();
    };
    (task, body)
}
