//! Experts that do not stay in memory: a step reads those that its rows use, and gives them back.

use cascadia_weights::{MemoryAdvice, ModelFiles, TensorBytes};

use crate::experts::Experts;

/// Where the files hold each expert of a layer.
pub(crate) struct ExpertPlaces {
    /// By expert. What is a copy in memory has no place.
    parts: Vec<Vec<TensorBytes>>,
}

impl ExpertPlaces {
    pub(crate) fn new(experts: &Experts, files: &ModelFiles) -> ExpertPlaces {
        let projections = [&experts.gate, &experts.up, &experts.down];
        let place = |expert: usize| projections.iter().filter_map(move |part| files.place_of(part.bytes_of(expert)));
        ExpertPlaces { parts: (0..experts.gate.count()).map(|expert| place(expert).collect()).collect() }
    }

    /// Bytes of all experts.
    pub(crate) fn bytes(&self) -> u64 {
        self.parts.iter().flatten().map(length).sum()
    }

    /// Whether some of `bytes` belong to an expert.
    pub(crate) fn overlap(&self, bytes: &TensorBytes) -> bool {
        self.parts.iter().flatten().any(|part| part.overlaps(bytes))
    }

    /// Brings some experts into memory, and returns how many bytes those are.
    ///
    /// All are asked for before the first is waited for: a disk is fastest with many requests, and what is read is
    /// exactly what was asked for. Touching alone would make the system read on beyond each expert.
    pub(crate) fn fetch(&self, experts: &[usize]) -> u64 {
        // A hint: where the system does not take it, touching reads.
        self.of(experts).for_each(|part| drop(part.advise(MemoryAdvice::WillNeed)));
        self.of(experts).for_each(TensorBytes::fetch);
        self.of(experts).map(length).sum()
    }

    /// Gives the memory of some experts back.
    pub(crate) fn release(&self, experts: &[usize]) {
        // A hint: where the system does not take it, memory fills up and pages leave in its own order.
        self.of(experts).for_each(|part| drop(part.advise(MemoryAdvice::Release)));
    }

    fn of(&self, experts: &[usize]) -> impl Iterator<Item = &TensorBytes> {
        experts.iter().flat_map(|&expert| &self.parts[expert])
    }
}

fn length(part: &TensorBytes) -> u64 {
    part.as_ref().len() as u64
}
