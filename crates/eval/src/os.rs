//! What only the operating system knows: how much memory this process uses, and which CPU it runs on.

/// The most physical memory this process has held so far (Linux), or what it holds now (macOS and Windows, where the
/// peak is not offered without unsafe calls). `None` when the system does not say.
pub fn peak_memory_bytes() -> Option<u64> {
    system::peak_memory_bytes()
}

/// Physical memory that this process holds now; on Linux without mapped files, so that weights which are read for the
/// first time do not count. `None` when the system does not say.
pub fn held_memory_bytes() -> Option<u64> {
    system::held_memory_bytes()
}

/// What the CPU is called. `None` when the system does not say.
pub(crate) fn cpu_name() -> Option<String> {
    system::cpu_name()
}

#[cfg(target_os = "linux")]
mod system {
    use std::fs;

    pub(super) fn peak_memory_bytes() -> Option<u64> {
        status_bytes("VmHWM:")
    }

    pub(super) fn held_memory_bytes() -> Option<u64> {
        status_bytes("RssAnon:")
    }

    pub(super) fn cpu_name() -> Option<String> {
        let text = fs::read_to_string("/proc/cpuinfo").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    }

    fn status_bytes(name: &str) -> Option<u64> {
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kibibytes.checked_mul(1024)
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    pub(super) fn peak_memory_bytes() -> Option<u64> {
        held_memory_bytes()
    }

    pub(super) fn held_memory_bytes() -> Option<u64> {
        memory_stats::memory_stats().map(|stats| stats.physical_mem as u64)
    }

    pub(super) fn cpu_name() -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_process_uses_memory() {
        assert!(super::peak_memory_bytes().is_some_and(|bytes| bytes > 100_000));
        assert!(super::held_memory_bytes().is_some_and(|bytes| bytes > 100_000));
    }
}
