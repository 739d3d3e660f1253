//! What the operating system tells of processors and memory.

mod system_files;

pub(crate) use system_files::SystemFiles;

/// Numbers of the processors this process may run on; empty when the system does not say.
pub(crate) fn allowed_processors() -> Vec<usize> {
    system::allowed_processors()
}

/// What the processor calls itself, with the numbers of its kind; empty when the system does not say.
pub(crate) fn processor_name() -> String {
    system::processor_name()
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

    pub(super) fn processor_name() -> String {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let first = text.split("\n\n").next().unwrap_or_default();
        let value = |name: &str| {
            let lines = first.lines().filter_map(|line| line.split_once(':'));
            lines.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim()).next()
        };
        let names = ["model name", "cpu family", "model", "CPU implementer", "CPU part"];
        names.into_iter().filter_map(value).collect::<Vec<_>>().join(" ")
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

    pub(super) fn processor_name() -> String {
        String::new()
    }

    pub(super) fn pin(_processor: usize) {}
}
