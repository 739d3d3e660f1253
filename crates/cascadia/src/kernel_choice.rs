//! Which kernels compute, and how they read weights.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use cascadia_kernels::{Ops, OpsSlot, Reading, Readings};

use crate::os;

/// How kernels read the weights of a model. Every way gives the same bits; what differs is the speed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Kernels {
    /// As is good on most machines.
    #[default]
    Default,
    /// As is fastest on this machine: measured when a model with matrices of an unknown kind is loaded, which takes about
    /// a tenth of a second for each kind, and kept in this folder.
    Measured(PathBuf),
    /// Always like this.
    Fixed(Reading),
}

impl Kernels {
    /// The kernels for models that so many threads compute.
    pub fn slot(&self, threads: usize) -> OpsSlot {
        match self {
            Kernels::Default => OpsSlot::default(),
            Kernels::Measured(folder) => OpsSlot::measuring(folder.join(choices_file(threads))),
            Kernels::Fixed(reading) => {
                let slot = OpsSlot::default();
                slot.set_readings(Readings::fixed(*reading));
                slot
            }
        }
    }
}

/// The files with what was measured on this machine, by the number of threads, in a folder that
/// [`Kernels::Measured`] names.
pub fn measured_choices(folder: &Path) -> BTreeMap<usize, PathBuf> {
    let prefix = choices_prefix();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let threads = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let threads = name.to_str()?.strip_prefix(&prefix)?.strip_suffix(".json")?.parse().ok()?;
        Some((threads, entry.path()))
    };
    entries.filter_map(threads).collect()
}

fn choices_file(threads: usize) -> String {
    format!("{}{threads}.json", choices_prefix())
}

/// What holds for one processor with one set of kernels need not hold for another.
fn choices_prefix() -> String {
    let text = format!("{} {}", os::processor_name(), Ops::best().name()).to_lowercase();
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(|word| format!("{word}-")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_after_the_processor() {
        let file = choices_file(2);
        assert!(file.ends_with("-2.json") && !file.contains([' ', '/']), "{file}");
        assert_eq!(Kernels::Measured("folder".into()).slot(2).choices(), Some(PathBuf::from("folder").join(file)));
        assert_eq!(Kernels::Default.slot(2).choices(), None);
    }

    #[test]
    fn files_of_this_processor_are_found_by_their_threads() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(measured_choices(&folder.path().join("missing")).is_empty());
        let names = [choices_file(2), choices_file(16), format!("other-{}", choices_file(4)), choices_prefix()];
        names.iter().for_each(|name| fs::write(folder.path().join(name), "{}").expect("written"));
        let expected = [2, 16].map(|threads| (threads, folder.path().join(choices_file(threads))));
        assert_eq!(measured_choices(folder.path()), BTreeMap::from(expected));
    }
}
