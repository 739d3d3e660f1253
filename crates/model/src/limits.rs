//! What a model is loaded for: the same for every stage, wherever it runs.

use crate::{CacheDemand, CachePages, ModelSpec};

/// Limits that are fixed when a model is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelLimits {
    /// Tokens of the longest sequence.
    pub context: u32,
    /// The most tokens of one step.
    pub rows_per_step: u32,
    /// Pages of KV cache that all sequences share.
    pub cache: CachePages,
}

impl ModelLimits {
    /// Limits with a cache for one sequence at its full length.
    pub fn one_sequence(spec: &ModelSpec, context: u32, rows_per_step: u32) -> ModelLimits {
        let cache = CachePages::whole(spec, &CacheDemand { context, rows_per_step, sequences: 1 });
        ModelLimits { context, rows_per_step, cache }
    }
}
