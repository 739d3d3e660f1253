//! What the operating system tells of processors.

/// Numbers of the processors this process may run on; empty when the system does not say.
pub(crate) fn allowed_processors() -> Vec<usize> {
    system::allowed_processors()
}

/// The processors that share a core with `processor`, as the system lists them (`0,8` or `0-1`).
pub(crate) fn siblings(processor: usize) -> Option<String> {
    system::siblings(processor)
}

/// Keeps the calling thread on one processor; where the system cannot, it runs anywhere.
pub(crate) fn pin(processor: usize) {
    system::pin(processor);
}

#[cfg(target_os = "linux")]
mod system {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    pub(super) fn allowed_processors() -> Vec<usize> {
        let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
        (0..CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)).collect()
    }

    pub(super) fn siblings(processor: usize) -> Option<String> {
        let path = format!("/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list");
        std::fs::read_to_string(path).ok()
    }

    pub(super) fn pin(processor: usize) {
        let mut set = CpuSet::new();
        set.set(processor);
        // Refused inside some containers; then the thread runs where the system puts it.
        let _ = sched_setaffinity(None, &set);
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    pub(super) fn allowed_processors() -> Vec<usize> {
        Vec::new()
    }

    pub(super) fn siblings(_processor: usize) -> Option<String> {
        None
    }

    pub(super) fn pin(_processor: usize) {}
}
