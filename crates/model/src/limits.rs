//! What a model is loaded for: the same for every stage, wherever it runs.

use cascadia_kernels::ActivationPrecision;

use crate::{CacheDemand, CachePages, KvLayout, KvPolicy, ModelSpec};

/// Limits that are fixed when a model is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelLimits {
    /// Tokens of the longest sequence.
    pub context: u32,
    /// The most tokens of one step.
    pub rows_per_step: u32,
    /// Pages of KV cache that all sequences share.
    pub cache: CachePages,
    /// How cached keys and values are stored.
    pub kv: KvPolicy,
    /// How exactly activations meet quantised weights.
    pub activations: ActivationPrecision,
}

impl ModelLimits {
    /// Limits with the usual cache, and activations as bytes.
    pub fn new(context: u32, rows_per_step: u32, cache: CachePages) -> ModelLimits {
        let (kv, activations) = (KvPolicy::default(), ActivationPrecision::default());
        ModelLimits { context, rows_per_step, cache, kv, activations }
    }

    /// Limits with a cache for one sequence at its full length.
    pub fn one_sequence(spec: &ModelSpec, context: u32, rows_per_step: u32) -> ModelLimits {
        let layout = KvLayout::whole(spec, &KvPolicy::default());
        let cache = CachePages::whole(&layout, &CacheDemand { context, rows_per_step, sequences: 1 });
        ModelLimits::new(context, rows_per_step, cache)
    }

    /// The pages of the whole model.
    pub fn kv_layout(&self, spec: &ModelSpec) -> KvLayout {
        KvLayout::whole(spec, &self.kv)
    }

    /// What rounds besides the weights, as a text: tokens depend on it.
    pub fn numerics(&self, spec: &ModelSpec) -> String {
        format!("{} cache, {} activations", self.kv.describe(spec), self.activations)
    }
}
