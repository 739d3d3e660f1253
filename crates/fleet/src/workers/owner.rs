//! Keeps to what the owner of a machine lends, for as long as a worker runs on it.

use std::path::Path;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use crate::{Availability, Clock, FleetError, OwnerLimits, Probe, Reading, os};

/// The time between two readings of the machine.
const INTERVAL: Duration = Duration::from_secs(2);
/// Readings after which the clock is asked again.
const READINGS_PER_HOUR_CHECK: u32 = 15;
/// How busy a machine is takes a moment to see.
const MOMENT: Duration = Duration::from_millis(200);

/// The threads that the owner lends; nothing if that is not limited.
pub fn lent_threads(limits: &OwnerLimits) -> Result<Option<u32>, FleetError> {
    let processors = available_parallelism().map_or(1, |count| count.get() as u32);
    limits.threads_of(processors).map_err(|problem| FleetError::Limits { problem })
}

/// Reads the machine on a thread of its own; the result says whether it should take part, for as long as it is held.
pub fn watch_owner(limits: OwnerLimits) -> Result<Arc<Availability>, FleetError> {
    let clock = Clock::system();
    let hour = || limits.hours.and_then(|_| os::hour());
    if limits.hours.is_some() && hour().is_none() {
        let problem = "this system does not tell the hour, so --hours cannot be kept; set other limits with \
            `worker limits --reset`";
        return Err(FleetError::Limits { problem: problem.to_owned() });
    }
    let (availability, mut probe) = (Arc::new(Availability::default()), Probe::at(Path::new("/")));
    availability.update(&limits, &probe.read(hour()), clock.now());
    let watched = Arc::downgrade(&availability);
    clock.spawn(move || {
        let mut now = None;
        for reading in 0u32.. {
            if reading % READINGS_PER_HOUR_CHECK == 0 {
                now = limits.hours.and_then(|_| os::hour());
            }
            let Some(watched) = watched.upgrade() else { return };
            watched.update(&limits, &probe.read(now), clock.now());
            drop(watched);
            clock.sleep(INTERVAL);
        }
    });
    Ok(availability)
}

/// What the system says of this machine now.
pub fn read_machine() -> Reading {
    let mut probe = Probe::at(Path::new("/"));
    probe.read(None);
    Clock::system().sleep(MOMENT);
    probe.read(os::hour())
}
