//! What the operating system tells of this machine and this process.

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

/// Bytes of memory that programs may still take; nothing where the system does not say.
pub(crate) fn free_memory() -> Option<u64> {
    system::free_memory()
}

/// Lets other programs go first, as do the threads that this one starts from now on; `false` where that is not offered.
pub(crate) fn lower_priority() -> bool {
    shared_by_unix::lower_priority()
}

/// The hour of the clock on the wall; nothing where the system does not say.
pub(crate) fn hour() -> Option<u32> {
    shared_by_unix::hour()
}

#[cfg(unix)]
mod shared_by_unix {
    use std::process::Command;

    /// About a tenth of what a program of usual priority gets where both want a processor.
    const POLITE: i32 = 10;

    pub(super) fn lower_priority() -> bool {
        rustix::process::nice(POLITE).is_ok()
    }

    pub(super) fn hour() -> Option<u32> {
        // The library knows no time zones; this program does, and is everywhere.
        let told = Command::new("date").arg("+%H").output().ok()?;
        std::str::from_utf8(&told.stdout).ok()?.trim().parse().ok()
    }
}

#[cfg(not(unix))]
mod shared_by_unix {
    pub(super) fn lower_priority() -> bool {
        false
    }

    pub(super) fn hour() -> Option<u32> {
        None
    }
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

    pub(super) fn free_memory() -> Option<u64> {
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
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

    pub(super) fn free_memory() -> Option<u64> {
        None
    }
}
