//! What only the operating system knows: how much memory this process uses.

/// The most physical memory this process has held so far (Linux), or what it holds now (macOS and Windows, where the
/// peak is not offered without unsafe calls). `None` when the system does not say.
pub fn peak_memory_bytes() -> Option<u64> {
    system::peak_memory_bytes()
}

#[cfg(target_os = "linux")]
mod system {
    pub(super) fn peak_memory_bytes() -> Option<u64> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kibibytes.checked_mul(1024)
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    pub(super) fn peak_memory_bytes() -> Option<u64> {
        memory_stats::memory_stats().map(|stats| stats.physical_mem as u64)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_process_uses_memory() {
        assert!(super::peak_memory_bytes().is_some_and(|bytes| bytes > 100_000));
    }
}
