//! Buffers of one stage, sized at load for its largest step, so that steps allocate nothing.

use cascadia_kernels::{Activations, Attention, AttentionScratch};

use crate::altup::AltUpWorkspace;
use crate::dense_and_experts::DenseAndExpertsWorkspace;
use crate::experts::ExpertsWorkspace;
use crate::latent::LatentWorkspace;
use crate::mixer::kernel;
use crate::per_layer::PerLayerWorkspace;
use crate::spec::{FeedForwardSpec, MixerSpec};
use crate::{LoadOptions, ModelSpec};

/// Everything a step writes besides the hidden states and the cache.
pub(crate) struct Workspace {
    /// Numbers in a hidden state, or in one stream of it.
    pub(crate) width: usize,
    /// Normalised rows that enter a branch of a layer.
    pub(crate) input: Activations,
    /// Rows that enter the last projection of a branch.
    pub(crate) inner: Activations,
    pub(crate) queries: Vec<f32>,
    pub(crate) keys: Vec<f32>,
    pub(crate) values: Vec<f32>,
    pub(crate) gate: Vec<f32>,
    /// What a branch adds to the hidden states.
    pub(crate) output: Vec<f32>,
    /// What is computed beside the mixer, while that runs.
    pub(crate) laurel: Vec<f32>,
    /// Rows on their way through a norm.
    pub(crate) spare: Vec<f32>,
    pub(crate) scratch: Vec<AttentionScratch>,
    pub(crate) experts: ExpertsWorkspace,
    pub(crate) latent: LatentWorkspace,
    pub(crate) per_layer: PerLayerWorkspace,
    pub(crate) dense_and_experts: DenseAndExpertsWorkspace,
    pub(crate) altup: AltUpWorkspace,
}

impl Workspace {
    /// Room for the largest step of a model that is loaded with these options.
    pub(crate) fn new(spec: &ModelSpec, options: &LoadOptions) -> Workspace {
        let (rows, context) = (options.limits.rows_per_step as usize, options.limits.context as usize);
        let threads = options.pool.threads();
        let mixers = || spec.layers.iter().map(|layer| &layer.mixer.part);
        let kernels = || mixers().map(kernel);
        let greatest = |size: fn(&Attention) -> usize| kernels().map(|kernel| size(&kernel)).max().unwrap_or(0);
        let queries = greatest(|shape| shape.heads * shape.head);
        let kv =
            mixers().map(MixerSpec::cache).map(|shape| shape.heads * shape.key.max(shape.value)).max().unwrap_or(0);
        let latents = mixers().filter_map(|mixer| match mixer {
            MixerSpec::Attention(_) => None,
            MixerSpec::Latent(latent) => Some(latent),
        });
        let query_rank = latents.clone().filter_map(|latent| latent.query_rank).max().unwrap_or(0);
        let feed_forwards = || spec.layers.iter().map(|layer| &layer.feed_forward.part);
        let feed_forward =
            feed_forwards().filter_map(FeedForwardSpec::shared).map(|dense| dense.inner).max().unwrap_or(0);
        let experts = feed_forwards().filter_map(FeedForwardSpec::experts);
        // Large enough for the largest group of heads and for the largest head, whichever layers have them.
        let group = greatest(|shape| shape.heads / shape.kv_heads);
        let widest = kernels().max_by_key(|shape| shape.head);
        let widest = widest.map(|shape| Attention { heads: group * shape.kv_heads, ..shape });
        let scratch = widest.iter().flat_map(|shape| (0..threads).map(move |_| AttentionScratch::new(shape, context)));
        let per_layer = spec.per_layer.map_or(0, |inputs| inputs.width);
        let rank = spec.layers.iter().filter_map(|layer| layer.laurel).map(|beside| beside.rank).max().unwrap_or(0);
        let laurel = if rank > 0 { rows * spec.width } else { 0 };
        let small = query_rank.max(per_layer).max(rank).max(spec.altup.map_or(0, |altup| altup.count));
        Workspace {
            width: spec.width,
            input: options.activations(rows, spec.width),
            inner: options.activations(rows, queries.max(feed_forward).max(small)),
            queries: Vec::with_capacity(rows * queries),
            keys: Vec::with_capacity(rows * kv),
            values: Vec::with_capacity(rows * kv),
            gate: Vec::with_capacity(rows * feed_forward.max(per_layer)),
            output: Vec::with_capacity(rows * spec.width),
            laurel: Vec::with_capacity(laurel),
            spare: Vec::with_capacity(rows * spec.width.max(queries).max(query_rank)),
            scratch: scratch.collect(),
            dense_and_experts: DenseAndExpertsWorkspace::new(spec, rows),
            altup: AltUpWorkspace::new(spec, rows, threads),
            per_layer: PerLayerWorkspace::new(spec, options),
            latent: LatentWorkspace::new(latents, options),
            experts: ExpertsWorkspace::new(experts, spec.width, options),
        }
    }
}
