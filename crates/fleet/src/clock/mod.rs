//! Time, and everything that waits for it: the system's clock, or a simulated one.
//!
//! Whatever reads the time, sleeps, waits for another thread or starts one in this crate does so through a [`Clock`].
//! With [`Clock::system`] that is what the standard library does. With the clock of a [`Simulation`] one thread runs at
//! a time, and time passes only when all of them wait: an hour takes as long as its events take to compute, and a
//! run is the same for the same seed.

mod channel;
mod monitor;
mod simulation;
mod task;

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub(crate) use channel::{Receiver, RecvError, Sender, channel};
pub use monitor::{Guard, Monitor};
use simulation::Scheduler;
pub use simulation::{Simulation, Trace};
pub use task::Task;
pub(crate) use task::spawn_scoped;

/// Where the time comes from. A copy is the same clock.
#[derive(Clone, Default)]
pub struct Clock(Option<Arc<Scheduler>>);

static SYSTEM: Clock = Clock(None);

impl Clock {
    /// The clock of the operating system.
    pub fn system() -> &'static Clock {
        &SYSTEM
    }

    /// The time now, for everything that is measured or decided here.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the system's clock")]
    pub fn now(&self) -> Instant {
        match &self.0 {
            None => Instant::now(),
            Some(scheduler) => scheduler.now(),
        }
    }

    /// Seconds since 1970, for records that people and other machines read.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the system's clock")]
    pub fn unix_seconds(&self) -> u64 {
        match &self.0 {
            None => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
            Some(scheduler) => scheduler.unix_seconds(),
        }
    }

    /// How long ago that was.
    pub fn since(&self, instant: Instant) -> Duration {
        self.now().saturating_duration_since(instant)
    }

    /// Lets that much time pass.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that sleeps")]
    pub fn sleep(&self, time: Duration) {
        match &self.0 {
            None => thread::sleep(time),
            Some(scheduler) => scheduler.wait(None, Some(scheduler.now() + time)),
        }
    }
}

/// Seconds since 1970 by the system's clock.
pub fn seconds_now() -> u64 {
    Clock::system().unix_seconds()
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_none() { "Clock::System" } else { "Clock::Simulated" })
    }
}
