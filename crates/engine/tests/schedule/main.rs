//! The scheduler on a model of hashes: a lost, repeated or exchanged step changes every token after it.

mod disk;
mod fairness;
mod hash_model;
mod lending;
mod places;
mod prefixes;
mod restoring;
mod simulation;
mod spill;
mod whole_texts;
