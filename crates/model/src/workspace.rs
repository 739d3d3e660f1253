//! Buffers of one stage, sized at load for its largest step, so that steps allocate nothing.

use cascadia_kernels::{Activations, AttentionScratch};

use crate::mixer::SelfAttention;
use crate::plan::RowPlaces;
use crate::rope::RopeTable;
use crate::{LayerSpec, ModelSpec};

/// Everything a step writes besides the hidden states and the cache.
pub(crate) struct Workspace {
    /// Normalised rows that enter attention or the feed-forward part.
    pub(crate) input: Activations,
    /// Rows that enter the last projection of either.
    pub(crate) inner: Activations,
    pub(crate) queries: Vec<f32>,
    pub(crate) keys: Vec<f32>,
    pub(crate) values: Vec<f32>,
    pub(crate) gate: Vec<f32>,
    /// What attention or the feed-forward part adds to the hidden states.
    pub(crate) output: Vec<f32>,
    pub(crate) ropes: Vec<RopeTable>,
    pub(crate) scratch: Vec<AttentionScratch>,
    pub(crate) places: RowPlaces,
}

/// The largest step of a stage.
pub(crate) struct StepLimits {
    pub(crate) rows: usize,
    pub(crate) context: usize,
    pub(crate) threads: usize,
}

impl Workspace {
    pub(crate) fn new(spec: &ModelSpec, limits: &StepLimits) -> Workspace {
        let rows = limits.rows;
        let greatest = |size: fn(&LayerSpec) -> usize| spec.layers.iter().map(size).max().unwrap_or(0);
        let (queries, kv) = (greatest(|layer| layer.heads * layer.head), greatest(|layer| layer.kv_heads * layer.head));
        let feed_forward = greatest(|layer| layer.feed_forward);
        let widest_group = spec.layers.iter().max_by_key(|layer| layer.heads / layer.kv_heads * layer.head.max(1));
        let scratch = widest_group.map(SelfAttention::shape).into_iter();
        let scratch =
            scratch.flat_map(|shape| (0..limits.threads).map(move |_| AttentionScratch::new(&shape, limits.context)));
        Workspace {
            input: Activations::with_capacity(rows, spec.width),
            inner: Activations::with_capacity(rows, queries.max(feed_forward)),
            queries: Vec::with_capacity(rows * queries),
            keys: Vec::with_capacity(rows * kv),
            values: Vec::with_capacity(rows * kv),
            gate: Vec::with_capacity(rows * feed_forward),
            output: Vec::with_capacity(rows * spec.width),
            ropes: spec.ropes.iter().map(|rope| RopeTable::with_capacity(rows, rope)).collect(),
            scratch: scratch.collect(),
            places: RowPlaces::with_capacity(rows),
        }
    }
}
