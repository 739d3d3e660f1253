//! What the operating system tells of disks, memory, processors and time, how it shares them, and what it forbids.

mod probe;
mod sandbox;

use std::path::Path;

use cascadia_weights::MemoryProbe;
use chrono::{Local, Timelike};
pub use probe::Probe;
pub use sandbox::{Sandbox, SandboxPlaces};

/// Bytes that are free where `folder` is; nothing where the system does not say.
pub(crate) fn free_bytes(folder: &Path) -> Option<u64> {
    system::free_bytes(folder)
}

/// What this machine is called in its network, as far as a fleet can call it that; nothing where the system does not say.
pub fn host_name() -> String {
    name_from(&system::host_name().unwrap_or_default())
}

/// The first part of a host name in small letters, with a dash for whatever else it has.
pub(crate) fn name_from(host: &str) -> String {
    let first = host.split('.').next().unwrap_or_default().to_lowercase();
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '_' { letter } else { '-' };
    let name: String = first.chars().map(plain).collect();
    let name = name.trim_matches('-');
    if name == "localhost" { String::new() } else { name.to_owned() }
}

/// Lowers the priority of this process and of the threads it starts from now on; `false` where that is not offered.
pub fn lower_priority() -> bool {
    system::lower_priority()
}

/// Lowers the priority of this thread alone, where the system offers that.
pub(crate) fn lower_thread_priority() {
    // Elsewhere, this would be the whole process.
    #[cfg(target_os = "linux")]
    system::lower_priority();
}

/// The hour of the local clock.
pub(crate) fn hour() -> u32 {
    Local::now().hour()
}

/// Bytes of memory that programs may still take; nothing where the system does not say.
pub(crate) fn free_memory() -> Option<u64> {
    MemoryProbe::at(Path::new("/")).free()
}

#[cfg(unix)]
mod system {
    use std::path::Path;

    /// About a tenth of what a program of usual priority gets where both want a processor.
    const NICENESS: i32 = 10;

    pub(super) fn free_bytes(folder: &Path) -> Option<u64> {
        let disk = rustix::fs::statvfs(folder).ok()?;
        disk.f_bavail.checked_mul(disk.f_frsize)
    }

    pub(super) fn lower_priority() -> bool {
        rustix::process::nice(NICENESS).is_ok()
    }

    pub(super) fn host_name() -> Option<String> {
        rustix::system::uname().nodename().to_str().ok().map(str::to_owned)
    }
}

#[cfg(not(unix))]
mod system {
    use std::path::Path;

    pub(super) fn free_bytes(_folder: &Path) -> Option<u64> {
        None
    }

    pub(super) fn lower_priority() -> bool {
        false
    }

    #[expect(clippy::disallowed_methods, reason = "Windows says the name of the machine there")]
    pub(super) fn host_name() -> Option<String> {
        std::env::var("COMPUTERNAME").ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_become_names_of_nodes() {
        let cases = [
            ("library-pc.office.example", "library-pc"),
            ("ANNA_PC", "anna_pc"),
            ("Anna’s MacBook.local", "anna-s-macbook"),
            ("localhost", ""),
            ("...", ""),
            ("", ""),
        ];
        for (host, name) in cases {
            assert_eq!(name_from(host), name, "{host}");
        }
    }
}
