//! The sandbox of a worker: what its process can no longer do once it has started, whoever controls it.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How much of the sandbox holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sandbox {
    /// Nothing: the process did not ask, or the kernel has neither Landlock nor seccomp.
    #[default]
    None,
    /// Some of it, because the kernel lacks the rest.
    Partial,
    /// All of it.
    Full,
    /// Nothing, because there is none for this operating system.
    NotOffered,
}

/// What a process in a sandbox may still touch, besides what every program reads of its system.
#[derive(Clone, Debug, Default)]
pub struct SandboxPlaces {
    /// Folders that exist, in which files may be written and removed.
    pub writes: Vec<PathBuf>,
    /// Files and folders that may be read.
    pub reads: Vec<PathBuf>,
}

impl Sandbox {
    /// All of them, by the numbers with which they are sent.
    const ALL: [Sandbox; 4] = [Sandbox::None, Sandbox::Partial, Sandbox::Full, Sandbox::NotOffered];

    /// The one with this number.
    pub(crate) fn numbered(number: u32) -> Option<Sandbox> {
        Sandbox::ALL.into_iter().find(|sandbox| *sandbox as u32 == number)
    }

    /// Puts this process into the sandbox for the rest of its life, and says what kept it from being a full one. Files
    /// are closed to the thread that calls and to those it starts, so it comes before any other thread.
    pub fn enter(places: &SandboxPlaces) -> (Sandbox, Vec<String>) {
        system::enter(places)
    }
}

impl fmt::Display for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sandbox::None => "none",
            Sandbox::Partial => "partial",
            Sandbox::Full => "full",
            Sandbox::NotOffered => "not offered by this system",
        })
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::collections::BTreeMap;
    use std::env::consts::ARCH;
    use std::path::Path;

    use landlock::{
        ABI, Access, AccessFs, AccessNet, BitFlags, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
        RulesetStatus, Scope, make_bitflags, path_beneath_rules,
    };
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter_all_threads};

    use super::{Sandbox, SandboxPlaces};

    /// The version of Landlock that has all that is asked for: files, TCP ports, signals and abstract sockets.
    const LANDLOCK: ABI = ABI::V6;

    const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir});
    const WRITE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir | WriteFile | Truncate | MakeReg | MakeDir | RemoveFile | RemoveDir});

    /// What a worker reads of its system: load, heat and batteries; its own process; time zones; how names of hosts are
    /// resolved, and the libraries with which the C library does so.
    const SYSTEM: &[&str] = &[
        "/proc/self",
        "/proc/stat",
        "/proc/meminfo",
        "/proc/cpuinfo",
        "/sys/class",
        "/sys/devices",
        "/sys/fs/cgroup",
        "/etc/localtime",
        "/etc/timezone",
        "/usr/share/zoneinfo",
        "/etc/hosts",
        "/etc/host.conf",
        "/etc/resolv.conf",
        "/etc/nsswitch.conf",
        "/etc/gai.conf",
        "/etc/services",
        "/etc/ld.so.cache",
        "/run/systemd/resolve",
        "/run/resolvconf",
        "/run/NetworkManager",
        "/lib",
        "/lib64",
        "/usr/lib",
        "/usr/lib64",
    ];

    /// System calls that fail in the sandbox: running programs, accepting connections, looking into or signalling other
    /// processes, changing users, mounts, namespaces, the kernel or the clock, and io_uring, which would do the same
    /// unseen.
    const REFUSED: &[i64] = &[
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_listen,
        libc::SYS_accept,
        libc::SYS_accept4,
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_process_madvise,
        libc::SYS_kcmp,
        libc::SYS_kill,
        libc::SYS_tkill,
        libc::SYS_rt_sigqueueinfo,
        libc::SYS_pidfd_open,
        libc::SYS_pidfd_getfd,
        libc::SYS_pidfd_send_signal,
        libc::SYS_setuid,
        libc::SYS_setgid,
        libc::SYS_setreuid,
        libc::SYS_setregid,
        libc::SYS_setresuid,
        libc::SYS_setresgid,
        libc::SYS_setgroups,
        libc::SYS_capset,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_move_mount,
        libc::SYS_open_tree,
        libc::SYS_fsopen,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_fspick,
        libc::SYS_mount_setattr,
        libc::SYS_open_by_handle_at,
        libc::SYS_quotactl,
        libc::SYS_swapon,
        libc::SYS_swapoff,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_kexec_load,
        libc::SYS_kexec_file_load,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_keyctl,
        libc::SYS_syslog,
        libc::SYS_acct,
        libc::SYS_reboot,
        libc::SYS_sethostname,
        libc::SYS_setdomainname,
        libc::SYS_settimeofday,
        libc::SYS_clock_settime,
        libc::SYS_clock_adjtime,
    ];

    /// On x86-64, the same calls have other numbers for programs with short pointers: those with this bit, and a few of
    /// their own.
    const SHORT_POINTERS: i64 = 0x4000_0000;
    const SHORT_POINTERS_OWN: std::ops::RangeInclusive<i64> = 512..=547;

    pub(super) fn enter(places: &SandboxPlaces) -> (Sandbox, Vec<String>) {
        let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
        let files = restrict_files(places);
        let mut problems = Vec::new();
        match &files {
            Ok(RulesetStatus::FullyEnforced) if threads == 1 => {}
            Ok(RulesetStatus::FullyEnforced) => problems.push(format!("{} threads had started before", threads - 1)),
            Ok(RulesetStatus::PartiallyEnforced) => problems.push("the kernel has an old Landlock".to_owned()),
            Ok(RulesetStatus::NotEnforced) => problems.push("the kernel has no Landlock".to_owned()),
            Err(error) => problems.push(format!("Landlock failed: {error}")),
        }
        let calls = refuse_calls();
        if let Err(problem) = &calls {
            problems.push(format!("seccomp failed: {problem}"));
        }
        let has_files = files.is_ok_and(|status| status != RulesetStatus::NotEnforced);
        match (problems.is_empty(), has_files || calls.is_ok()) {
            (true, _) => (Sandbox::Full, problems),
            (false, true) => (Sandbox::Partial, problems),
            (false, false) => (Sandbox::None, problems),
        }
    }

    /// Closes all files but those that are listed, all TCP ports, and ways to other processes.
    fn restrict_files(places: &SandboxPlaces) -> Result<RulesetStatus, RulesetError> {
        let program = std::env::current_exe().ok();
        let reads =
            SYSTEM.iter().map(Path::new).chain(places.reads.iter().map(|path| &**path)).chain(program.as_deref());
        let restricted = Ruleset::default()
            .handle_access(AccessFs::from_all(LANDLOCK))?
            .handle_access(AccessNet::BindTcp)?
            .scope(Scope::from_all(LANDLOCK))?
            .create()?
            .add_rules(path_beneath_rules(reads, READ))?
            .add_rules(path_beneath_rules(&places.writes, WRITE))?
            .restrict_self()?;
        Ok(restricted.ruleset)
    }

    /// Lets the listed system calls fail in all threads.
    fn refuse_calls() -> Result<(), String> {
        let mut calls: Vec<i64> = REFUSED.to_vec();
        if ARCH == "x86_64" {
            calls.extend(REFUSED.iter().map(|call| call | SHORT_POINTERS));
            calls.extend(SHORT_POINTERS_OWN.map(|call| call | SHORT_POINTERS));
        }
        let rules: BTreeMap<i64, _> = calls.into_iter().map(|call| (call, Vec::new())).collect();
        let refused = SeccompAction::Errno(libc::EPERM as u32);
        let arch = ARCH.try_into().map_err(|error: seccompiler::BackendError| error.to_string())?;
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch);
        let program = filter.and_then(BpfProgram::try_from).map_err(|error| error.to_string())?;
        apply_filter_all_threads(&program).map_err(|error| error.to_string())
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::{Sandbox, SandboxPlaces};

    pub(super) fn enter(_places: &SandboxPlaces) -> (Sandbox, Vec<String>) {
        (Sandbox::NotOffered, vec!["there is none for this operating system".to_owned()])
    }
}
