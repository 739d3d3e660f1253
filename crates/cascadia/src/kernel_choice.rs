//! Which kernels compute, and how they read weights.

use std::path::PathBuf;

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

/// What holds for one processor with one set of kernels need not hold for another.
fn choices_file(threads: usize) -> String {
    let text = format!("{} {} {threads}", os::processor_name(), Ops::best().name()).to_lowercase();
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    format!("{}.json", words.collect::<Vec<_>>().join("-"))
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
}
