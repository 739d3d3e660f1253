//! How much of its memory a machine uses, and how near a process is to the limits of its control groups.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// The share of the memory from which on a process releases what it does not compute with.
pub const MEMORY_SHED: f64 = 0.92;
/// The share of the memory from which on it takes no more work.
pub const MEMORY_REFUSE: f64 = 0.95;

/// Asks a system of Linux's kind through its files; other systems have none of these, and offer nothing.
pub struct MemoryProbe {
    root: PathBuf,
}

/// The files in which a kind of control groups tells of memory.
#[derive(Clone, Copy)]
struct GroupFiles {
    folder: &'static str,
    limit: &'static str,
    used: &'static str,
    /// Lines of `memory.stat` that count pages of files, which the system drops before it ends anyone.
    droppable: [&'static str; 2],
}

/// The second version of control groups, and the first.
const SECOND: GroupFiles = GroupFiles {
    folder: "sys/fs/cgroup",
    limit: "memory.max",
    used: "memory.current",
    droppable: ["active_file ", "inactive_file "],
};
const FIRST: GroupFiles = GroupFiles {
    folder: "sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    droppable: ["total_active_file ", "total_inactive_file "],
};

impl MemoryProbe {
    /// Asks the system whose files begin at `root`, which is `/` but in tests.
    pub fn at(root: &Path) -> MemoryProbe {
        MemoryProbe { root: root.to_owned() }
    }

    /// Bytes that programs may still take.
    pub fn free(&self) -> Option<u64> {
        self.of_machine("MemAvailable:")
    }

    /// The share of memory that is used and cannot be dropped, from 0 to 1: of the machine, or of a control group that
    /// this process is in, whichever is fuller.
    pub fn used(&self) -> Option<f64> {
        let all = self.of_machine("MemTotal:");
        let machine = all.zip(self.free()).and_then(|(all, free)| share(all.saturating_sub(free), all));
        self.groups().iter().filter_map(|(files, folder)| files.used(folder)).chain(machine).reduce(f64::max)
    }

    /// The memory that this process may use in all: that of the machine, or less in a control group with a limit.
    pub fn total(&self) -> Option<u64> {
        let limits = self.groups().into_iter().filter_map(|(files, folder)| files.limit(&folder));
        limits.chain(self.of_machine("MemTotal:")).min()
    }

    fn of_machine(&self, name: &str) -> Option<u64> {
        let text = text(&self.root.join("proc/meminfo"))?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    }

    /// The control groups that this process is in, each with the folder of its files.
    fn groups(&self) -> Vec<(GroupFiles, PathBuf)> {
        let groups = text(&self.root.join("proc/self/cgroup")).unwrap_or_default();
        groups.lines().flat_map(|line| self.groups_of(line)).collect()
    }

    /// A group, which is a line such as `0::/user/app`, and those that it is in.
    fn groups_of(&self, line: &str) -> Vec<(GroupFiles, PathBuf)> {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(kinds), Some(path)) = (parts.next(), parts.next()) else { return Vec::new() };
        let files = match kinds {
            "" => SECOND,
            kinds if kinds.split(',').any(|kind| kind == "memory") => FIRST,
            _ => return Vec::new(),
        };
        let names = Path::new(path).components().filter(|name| matches!(name, Component::Normal(_)));
        let group: PathBuf = names.collect();
        group.ancestors().map(|group| (files, self.root.join(files.folder).join(group))).collect()
    }
}

impl GroupFiles {
    /// The limit of one group, if it has one.
    fn limit(&self, folder: &Path) -> Option<u64> {
        bytes(&folder.join(self.limit))
    }

    /// The share of one group; none if it has no limit.
    fn used(&self, folder: &Path) -> Option<f64> {
        let (limit, used) = (self.limit(folder)?, bytes(&folder.join(self.used))?);
        let stat = text(&folder.join("memory.stat")).unwrap_or_default();
        let droppable = |name: &&str| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        let dropped = self.droppable.iter().filter_map(droppable).fold(0, u64::saturating_add);
        share(used.saturating_sub(dropped), limit)
    }
}

fn share(used: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| used as f64 / all as f64)
}

fn bytes(path: &Path) -> Option<u64> {
    text(path)?.trim().parse().ok()
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_is_all_that_there_is() {
        let root = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("it can be written");
        };
        let total = || MemoryProbe::at(root.path()).total();
        assert_eq!(total(), None);
        write("proc/meminfo", "MemTotal:  1000 kB\n");
        assert_eq!(total(), Some(1_024_000));
        write("proc/self/cgroup", "0::/user/app\n");
        write("sys/fs/cgroup/user/app/memory.max", "max\n");
        assert_eq!(total(), Some(1_024_000));
        write("sys/fs/cgroup/user/memory.max", "5000\n");
        assert_eq!(total(), Some(5000));
    }

    #[test]
    fn the_fullest_of_machine_and_groups_counts_without_what_can_be_dropped() {
        let check = |files: &[(&str, &str)], expected: Option<f64>| {
            let root = tempfile::tempdir().expect("a folder");
            for (path, text) in files {
                let path = root.path().join(path);
                fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
                fs::write(path, text).expect("it can be written");
            }
            assert_eq!(MemoryProbe::at(root.path()).used(), expected, "{files:?}");
        };
        let machine = ("proc/meminfo", "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:  400 kB\n");
        let group = ("proc/self/cgroup", "0::/user/app\n");
        let own = |text| ("sys/fs/cgroup/user/app/memory.max", text);
        let used = ("sys/fs/cgroup/user/app/memory.current", "900\n");
        let stat = ("sys/fs/cgroup/user/app/memory.stat", "anon 1\nfile 200\nactive_file 50\ninactive_file 100\n");
        check(&[], None);
        check(&[machine], Some(0.6));
        check(&[("proc/meminfo", "MemTotal: 0 kB\nMemAvailable: 0 kB\n")], None);
        check(&[("proc/meminfo", "MemTotal: x\nMemAvailable: 1 kB\n")], None);
        check(&[machine, group, own("1000\n"), used], Some(0.9));
        check(&[machine, group, own("1000\n"), used, stat], Some(0.75));
        check(&[machine, group, own("max\n"), used], Some(0.6));
        check(&[machine, group, own("100000\n"), used], Some(0.6));
        // A limit of a group around it holds too, and so does that of a container, which does not see its own name.
        let around = [("sys/fs/cgroup/user/memory.max", "1000"), ("sys/fs/cgroup/user/memory.current", "950")];
        check(&[machine, group, own("max"), used, around[0], around[1]], Some(0.95));
        let container = [("sys/fs/cgroup/memory.max", "1000"), ("sys/fs/cgroup/memory.current", "970")];
        check(&[machine, ("proc/self/cgroup", "0::/../../other\n"), container[0], container[1]], Some(0.97));
        let first = [
            ("proc/self/cgroup", "5:cpu:/x\n4:hugetlb,memory:/app\n"),
            ("sys/fs/cgroup/memory/app/memory.limit_in_bytes", "1000\n"),
            ("sys/fs/cgroup/memory/app/memory.usage_in_bytes", "990\n"),
            ("sys/fs/cgroup/memory/app/memory.stat", "cache 9\ntotal_inactive_file 90\ntotal_active_file 20\n"),
        ];
        check(&first, Some(0.88));
    }
}
