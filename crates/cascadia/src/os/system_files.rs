//! What the files of Linux say of processors and memory; other systems have none of these, and say nothing.

use std::fs;
use std::path::{Path, PathBuf};

/// What a core of full speed counts as, by Linux's own measure.
const FULL_CAPACITY: u64 = 1024;
/// What an efficiency core counts as where the system only says that it is one.
const EFFICIENCY_CAPACITY: u64 = FULL_CAPACITY / 2;

/// The files that begin at a root, which is `/` but in tests.
pub(crate) struct SystemFiles {
    root: PathBuf,
}

impl SystemFiles {
    pub(crate) fn at(root: &Path) -> SystemFiles {
        SystemFiles { root: root.to_owned() }
    }

    /// The processors that share a core with `processor`, itself included.
    pub(crate) fn siblings(&self, processor: usize) -> Vec<usize> {
        self.list(&format!("sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list"))
    }

    /// How fast a processor is beside others: what the system says, or else whether Intel calls it an efficiency core.
    pub(crate) fn capacity(&self, processor: usize) -> u64 {
        let said = self.read(&format!("sys/devices/system/cpu/cpu{processor}/cpu_capacity"));
        let efficiency =
            || ["cpu_atom", "cpu_lowpower"].map(|kind| self.list(&format!("sys/devices/{kind}/cpus"))).concat();
        said.and_then(|text| text.trim().parse().ok())
            .unwrap_or_else(|| if efficiency().contains(&processor) { EFFICIENCY_CAPACITY } else { FULL_CAPACITY })
    }

    /// The nodes that have memory; none where the system does not say.
    pub(crate) fn memory_nodes(&self) -> Vec<usize> {
        self.list("sys/devices/system/node/has_memory")
    }

    /// A list such as `0,4-6`.
    fn list(&self, path: &str) -> Vec<usize> {
        /// More processors than any machine has, so that a wrong list costs nothing.
        const MOST: usize = 1 << 16;
        let text = self.read(path).unwrap_or_default();
        let range = |part: &str| {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            Some(low.parse().ok()?..=high.parse().ok().filter(|high: &usize| *high < MOST)?)
        };
        text.trim().split(',').filter_map(range).flatten().collect()
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(files: &[(&str, &str)]) -> (tempfile::TempDir, SystemFiles) {
        let root = tempfile::tempdir().expect("a folder");
        for (path, text) in files {
            let path = root.path().join("sys/devices").join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, format!("{text}\n")).expect("written");
        }
        let files = SystemFiles::at(root.path());
        (root, files)
    }

    #[test]
    fn efficiency_cores_count_less() {
        let (_root, intel) = system(&[("cpu_core/cpus", "0-3"), ("cpu_atom/cpus", "4-7"), ("cpu_lowpower/cpus", "9")]);
        let capacities: Vec<u64> = [0, 3, 4, 7, 8, 9].map(|processor| intel.capacity(processor)).to_vec();
        assert_eq!(capacities, [1024, 1024, 512, 512, 1024, 512]);
        let (_root, arm) = system(&[("system/cpu/cpu0/cpu_capacity", "290"), ("system/cpu/cpu1/cpu_capacity", "1024")]);
        assert_eq!([arm.capacity(0), arm.capacity(1), arm.capacity(2)], [290, 1024, 1024]);
    }

    #[test]
    fn lists_are_read() {
        let check = |text: &str, numbers: &[usize]| {
            let (_root, files) = system(&[("system/node/has_memory", text)]);
            assert_eq!(files.memory_nodes(), numbers, "{text:?}");
        };
        check("0", &[0]);
        check("0-1", &[0, 1]);
        check("0,2-3,8", &[0, 2, 3, 8]);
        check("", &[]);
        check("nonsense,1", &[1]);
        check("0-99999999999", &[]);
        let (_root, files) = system(&[("system/cpu/cpu2/topology/thread_siblings_list", "2,6")]);
        assert_eq!((files.siblings(2), files.siblings(0), files.memory_nodes()), (vec![2, 6], vec![], vec![]));
    }
}
