//! Keeps to what the owner of a machine lends, for as long as a worker runs on it.

use std::path::Path;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use cascadia_weights::MemoryProbe;

use crate::{Availability, Clock, FleetError, OwnerLimits, Probe, Reading, os};

/// The time between two readings of the machine.
const INTERVAL: Duration = Duration::from_secs(2);
/// The time between two looks at its memory, which may fill faster than anything else changes.
const MEMORY_INTERVAL: Duration = Duration::from_millis(250);
/// How busy a machine is takes a moment to see.
const MOMENT: Duration = Duration::from_millis(200);

/// The threads that the owner lends; nothing if that is not limited.
pub fn lent_threads(limits: &OwnerLimits) -> Result<Option<u32>, FleetError> {
    let processors = available_parallelism().map_or(1, |count| count.get() as u32);
    limits.threads_of(processors).map_err(|problem| FleetError::Limits { problem })
}

/// Reads the machine on a thread of its own; the result says whether it should take part, for as long as it is held.
pub fn watch_owner(limits: OwnerLimits) -> Arc<Availability> {
    let clock = Clock::system();
    let (mut probe, memory) = (Probe::at(Path::new("/")), MemoryProbe::at(Path::new("/")));
    let availability = Arc::new(Availability::default());
    availability.update(&limits, &probe.read(Some(os::hour())), clock.now());
    availability.update_memory(memory.used(), clock.now());
    let (watched, mut next) = (Arc::downgrade(&availability), clock.now() + INTERVAL);
    clock.spawn(move || {
        while let Some(watched) = watched.upgrade() {
            watched.update_memory(memory.used(), clock.now());
            if clock.now() >= next {
                watched.update(&limits, &probe.read(Some(os::hour())), clock.now());
                next = clock.now() + INTERVAL;
            }
            drop(watched);
            clock.sleep(MEMORY_INTERVAL);
        }
    });
    availability
}

/// What the system says of this machine now.
pub fn read_machine() -> Reading {
    let mut probe = Probe::at(Path::new("/"));
    probe.read(None);
    Clock::system().sleep(MOMENT);
    probe.read(Some(os::hour()))
}
