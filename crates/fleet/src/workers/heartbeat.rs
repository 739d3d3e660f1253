//! Heartbeats of a busy worker: while it computes, and while a large step is still arriving.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::clock::{Clock, Monitor};
use crate::wire::frame::{Kind, Outgoing};
use crate::wire::link::{Link, LinkError};

/// The time between two heartbeats; whoever waits for them is more patient than that.
const INTERVAL: Duration = Duration::from_millis(50);

/// A link whose peer hears something in about every [`INTERVAL`] while there is something to do.
pub(crate) struct Heartbeat<'a> {
    link: Mutex<BeatingLink<'a>>,
    /// How many layers are computed, if that is known.
    progress: &'a (dyn Fn() -> Option<u64> + Sync),
    activity: Monitor<Activity>,
}

/// What the thread that sends heartbeats has to know of the one that computes.
#[derive(Default)]
struct Activity {
    is_computing: bool,
    /// Whether anything was computed since the last look.
    was_busy: bool,
    /// Whether the other thread looks only when it is woken.
    sleeps: bool,
    has_ended: bool,
}

impl<'a> Heartbeat<'a> {
    /// For a link of this epoch. Heartbeats tell the progress of what is computed.
    pub(crate) fn new(
        link: &'a mut dyn Link,
        epoch: u32,
        progress: &'a (dyn Fn() -> Option<u64> + Sync),
    ) -> Heartbeat<'a> {
        let activity = Monitor::new(link.clock(), Activity::default());
        let sent = link.clock().now();
        Heartbeat { link: Mutex::new(BeatingLink { link, epoch, sent }), progress, activity }
    }

    /// The link for as long as something is read or sent.
    pub(crate) fn link(&self) -> MutexGuard<'_, BeatingLink<'a>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Computes something that does not panic, with heartbeats.
    pub(crate) fn while_computing<T>(&self, compute: impl FnOnce() -> T) -> T {
        let mut activity = self.activity.lock();
        (activity.is_computing, activity.was_busy) = (true, true);
        let sleeps = activity.sleeps;
        drop(activity);
        // In a row of steps the other thread looks by itself.
        if sleeps {
            self.activity.notify();
        }
        let computed = compute();
        self.activity.lock().is_computing = false;
        computed
    }

    /// Sends heartbeats while something is computed, until [`Heartbeat::end`].
    pub(crate) fn run(&self) {
        let mut activity = self.activity.lock();
        while !activity.has_ended {
            let is_busy = std::mem::take(&mut activity.was_busy) || activity.is_computing;
            let due = is_busy.then(|| self.activity.clock().now() + INTERVAL);
            activity.sleeps = due.is_none();
            activity = self.activity.wait(activity, due);
            if activity.is_computing && due.is_some_and(|due| self.activity.clock().now() >= due) {
                drop(activity);
                // A link that fails here fails for whoever computes, too.
                if self.link.try_lock().is_ok_and(|mut link| link.beat((self.progress)()).is_err()) {
                    return;
                }
                activity = self.activity.lock();
            }
        }
    }

    /// Ends [`Heartbeat::run`].
    pub(crate) fn end(&self) {
        self.activity.lock().has_ended = true;
        self.activity.notify();
    }
}

/// A link that remembers when something was last sent.
pub(crate) struct BeatingLink<'a> {
    link: &'a mut dyn Link,
    epoch: u32,
    sent: Instant,
}

impl BeatingLink<'_> {
    /// Sends a heartbeat unless something was sent just now.
    fn beat(&mut self, layers_computed: Option<u64>) -> Result<(), LinkError> {
        if self.link.clock().since(self.sent) < INTERVAL / 2 {
            return Ok(());
        }
        let message = layers_computed.map(u64::to_le_bytes);
        let message = message.as_ref().map_or(&[][..], |layers| &layers[..]);
        let beat = Outgoing { epoch: self.epoch, ..Outgoing::message(Kind::Beat, message) };
        beat.send(self, &mut Vec::new()).map(|_| ())
    }
}

impl Link for BeatingLink<'_> {
    fn clock(&self) -> &Clock {
        self.link.clock()
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        self.sent = self.link.clock().now();
        self.link.write(bytes)
    }

    fn read(&mut self, out: &mut [u8], deadline: Instant) -> Result<usize, LinkError> {
        let count = self.link.read(out, deadline)?;
        if self.link.clock().since(self.sent) >= INTERVAL {
            // Nothing is computed while a step is still arriving.
            self.beat(None)?;
        }
        Ok(count)
    }
}
