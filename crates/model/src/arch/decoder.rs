//! What most families have in common: a decoder of equal layers, which each family then changes where it differs.

use cascadia_kernels::Activation;
use cascadia_weights::{FileKind, MetadataValue};
use serde_json::Value;

use super::keys::*;
use super::{Source, pooling, positions};
use crate::spec::{
    AttentionSpec, Branch, BranchOrder, CacheSource, DenseSpec, EmbeddingSpec, FeedForwardSpec, Gate, HeadSpec,
    LatentSpec, MixerSpec, NormKind, NormSpec, ValueSource,
};
use crate::{LayerSpec, ModelError, ModelSpec, RopeSpec};

/// Names that configurations have for activations.
const ACTIVATIONS: [(&str, Activation); 10] = [
    ("silu", Activation::Silu),
    ("swish", Activation::Silu),
    ("swiglu", Activation::Silu),
    ("gelu", Activation::Gelu),
    ("gelu_new", Activation::GeluTanh),
    ("gelu_fast", Activation::GeluTanh),
    ("gelu_pytorch_tanh", Activation::GeluTanh),
    ("gelu_tanh", Activation::GeluTanh),
    ("relu", Activation::Relu),
    ("relu2", Activation::ReluSquared),
];

/// A decoder: norms by the mean square, attention with rotary positions, gated feed-forward parts.
pub(super) fn gated_decoder(source: &Source<'_>) -> Result<ModelSpec, ModelError> {
    let (settings, catalog) = (&source.settings, &source.catalog);
    let width = settings.require_count(WIDTH, MOST_WIDTH)?;
    let heads = settings.require_count(HEADS, MOST_WIDTH)?;
    let head = match settings.count(HEAD, MOST_WIDTH)? {
        Some(head) => head,
        None if width.is_multiple_of(heads) => width / heads,
        None => return Err(settings.error(HEADS, format!("is {heads}, which does not divide a width of {width}"))),
    };
    if let Some(other) = settings.count(VALUE_HEAD, MOST_WIDTH)?.filter(|value_head| *value_head != head) {
        return Err(settings.error(VALUE_HEAD, format!("is {other}; this version needs it equal to {head}")));
    }
    let layers = settings.require_count(LAYERS, MOST_LAYERS)?;
    let kv_heads = settings.each(KV_HEADS, MOST_WIDTH, layers)?.unwrap_or_else(|| vec![heads; layers]);
    let attention = AttentionSpec {
        heads,
        kv_heads: heads,
        head,
        score_scale: settings.positive(ATTENTION_SCALE)?.unwrap_or(1.0 / (head as f32).sqrt()),
        window: None,
        sees_later: false,
        rope: Some(0),
        alibi: None,
        soft_cap: None,
        sinks: false,
        head_norm: None,
        clamp: None,
        qkv_bias: catalog.has("blk.0.attn_q.bias") || catalog.has("blk.0.attn_qkv.bias"),
        output_bias: catalog.has("blk.0.attn_output.bias"),
        values: ValueSource::Projection,
        values_normed: false,
        cache: CacheSource::Own,
    };
    let mut spec = decoder_with(source, MixerSpec::Attention(attention), positions::rope(source, head)?)?;
    each_attention(&mut spec, |layer, attention| attention.kv_heads = kv_heads[layer]);
    Ok(spec)
}

/// A decoder of layers with this mixer: norms by the mean square, gated feed-forward parts.
pub(super) fn decoder_with(source: &Source<'_>, mixer: MixerSpec, rope: RopeSpec) -> Result<ModelSpec, ModelError> {
    let (settings, catalog) = (&source.settings, &source.catalog);
    let width = settings.require_count(WIDTH, MOST_WIDTH)?;
    let embedding = catalog.require("token_embd.weight")?;
    let layers = settings.require_count(LAYERS, MOST_LAYERS)?;
    let inner = settings.each(FEED_FORWARD, 16 * MOST_WIDTH, layers)?.unwrap_or_else(|| vec![4 * width; layers]);
    let activation = activation(source, Activation::Silu)?;
    let layer = |inner: usize| LayerSpec {
        mixer: Branch { norm_before: Some("attn_norm"), part: mixer.clone(), norm_after: None, norm_of_sum: None },
        feed_forward: Branch {
            norm_before: Some("ffn_norm"),
            part: FeedForwardSpec::Dense(DenseSpec {
                inner,
                activation,
                gate: Gate::Own,
                gate_cut: None,
                bias: catalog.has("blk.0.ffn_up.bias"),
            }),
            norm_after: None,
            norm_of_sum: None,
        },
        laurel: None,
        order: BranchOrder::InTurn,
        residual_scale: 1.0,
        output_scaled: false,
    };
    Ok(ModelSpec {
        architecture: settings.architecture.clone(),
        vocabulary: embedding.shape().first().copied().unwrap_or(0) as usize,
        width,
        altup: None,
        context: context(source)?.max(positions::reach(&rope.scaling)),
        embedding: EmbeddingSpec { scale: 1.0, positions: None, texts: None, normed: false },
        per_layer: None,
        layers: inner.into_iter().map(layer).collect(),
        ropes: vec![rope],
        norm: NormSpec { kind: NormKind::RootMeanSquare, epsilon: epsilon(source)? },
        final_norm: true,
        head: Some(HeadSpec {
            tied: !catalog.has("output.weight"),
            bias: catalog.has("output.bias"),
            scale: 1.0,
            soft_cap: None,
        }),
        pooling: pooling::pooling(source)?,
        weights: largest_dtype(source),
    })
}

/// A decoder with layer norms and feed-forward parts without a gate, as families before Llama have.
pub(super) fn plain_decoder(source: &Source<'_>) -> Result<ModelSpec, ModelError> {
    let mut spec = gated_decoder(source)?;
    spec.norm.kind = NormKind::Layer { bias: source.catalog.has("output_norm.bias") };
    let default = activation(source, Activation::Gelu)?;
    each_dense(&mut spec, |dense| (dense.gate, dense.activation) = (Gate::None, default));
    Ok(spec)
}

/// Changes the attention of every layer.
pub(super) fn each_attention(spec: &mut ModelSpec, mut change: impl FnMut(usize, &mut AttentionSpec)) {
    for (layer, spec) in spec.layers.iter_mut().enumerate() {
        if let MixerSpec::Attention(attention) = &mut spec.mixer.part {
            change(layer, attention);
        }
    }
}

/// Bends logits to stay within so much of zero.
pub(super) fn bend_logits(spec: &mut ModelSpec, soft_cap: Option<f32>) {
    spec.head.iter_mut().for_each(|head| head.soft_cap = soft_cap);
}

/// Changes the dense feed-forward part of every layer.
pub(super) fn each_dense(spec: &mut ModelSpec, mut change: impl FnMut(&mut DenseSpec)) {
    for layer in &mut spec.layers {
        if let FeedForwardSpec::Dense(dense) = &mut layer.feed_forward.part {
            change(dense);
        }
    }
}

/// Tokens that the model was trained to attend over.
pub(super) fn context(source: &Source<'_>) -> Result<u32, ModelError> {
    Ok(source.settings.count(CONTEXT, MOST_CONTEXT)?.unwrap_or(2048) as u32)
}

/// The function between the matrices of feed-forward parts.
fn activation(source: &Source<'_>, default: Activation) -> Result<Activation, ModelError> {
    let config = source.settings.config();
    let Some(name) = ACTIVATION.json.iter().find_map(|key| config[*key].as_str()) else { return Ok(default) };
    let known = ACTIVATIONS.iter().find(|(known, _)| *known == name);
    known.map(|(_, activation)| *activation).ok_or_else(|| {
        let names: Vec<&str> = ACTIVATIONS.iter().map(|(name, _)| *name).collect();
        source.settings.error(ACTIVATION, format!("is `{name}`; this version runs {}", names.join(", ")))
    })
}

/// Added to the mean square in every norm.
fn epsilon(source: &Source<'_>) -> Result<f32, ModelError> {
    source.settings.positive(EPSILON)?.ok_or_else(|| source.settings.error(EPSILON, "is missing"))
}

/// The storage format of most weights.
fn largest_dtype(source: &Source<'_>) -> cascadia_kernels::Dtype {
    let first_layer =
        source.catalog.entries().filter(|(name, entry)| name.starts_with("blk.0.") && entry.shape().len() > 1);
    let largest = first_layer.max_by_key(|(_, entry)| entry.shape().iter().product::<u64>());
    largest.map_or(cascadia_kernels::Dtype::F32, |(_, entry)| entry.dtype())
}

/// Lets the last layers read what the last layer of their kind before them has cached. Returns the first that does.
pub(super) fn share_caches(source: &Source<'_>, spec: &mut ModelSpec) -> Result<usize, ModelError> {
    let shared = source.settings.count_or_none(SHARED_CACHES, MOST_LAYERS)?.unwrap_or(0);
    let first = spec.layers.len().saturating_sub(shared);
    let windows: Vec<Option<u32>> = spec.layers.iter().map(|layer| layer.mixer.part.cache().window).collect();
    let owner = |layer: usize| (0..first).rev().find(|&earlier| windows[earlier] == windows[layer]);
    if let Some(layer) = (first..windows.len()).find(|&layer| owner(layer).is_none()) {
        let problem = format!("is {shared} of {}: no layer of its kind comes before layer {layer}", windows.len());
        return Err(source.settings.error(SHARED_CACHES, problem));
    }
    each_attention(spec, |layer, attention| {
        if let Some(owner) = owner(layer).filter(|_| layer >= first) {
            attention.cache = CacheSource::Layer(owner);
        }
    });
    Ok(first)
}

/// Newest positions that layers with a window see; zero and null stand for none.
pub(super) fn window(source: &Source<'_>) -> Result<Option<u32>, ModelError> {
    Ok(source.settings.count_or_none(WINDOW, MOST_CONTEXT)?.map(|window| window as u32))
}

/// Which layers have a window, where the file lists them one by one.
pub(super) fn windowed_layers(source: &Source<'_>, layers: usize) -> Result<Option<Vec<bool>>, ModelError> {
    let settings = &source.settings;
    let listed = match settings.files.kind() {
        FileKind::Gguf => {
            let name = settings.name(WINDOW_PATTERN);
            match settings.files.metadata().get(&name) {
                None => None,
                Some(MetadataValue::Array(_)) => Some(settings.files.metadata().require::<Vec<bool>>(&name)?),
                // One number is a period, of which all layers but the last have a window.
                Some(_) => {
                    let period = settings.require_count(WINDOW_PATTERN, MOST_LAYERS)?;
                    Some((0..layers).map(|layer| layer % period < period - 1).collect())
                }
            }
        }
        FileKind::HuggingFace => match &settings.config()["layer_types"] {
            Value::Array(types) => Some(types.iter().map(|kind| kind == "sliding_attention").collect()),
            _ => None,
        },
    };
    match listed {
        Some(listed) if listed.len() < layers => {
            Err(settings.error(WINDOW_PATTERN, format!("lists {} layers of {layers}", listed.len())))
        }
        listed => Ok(listed),
    }
}

/// What every forward pass relies on, whatever the family.
pub(super) fn check(source: &Source<'_>, spec: &ModelSpec) -> Result<(), ModelError> {
    for (index, layer) in spec.layers.iter().enumerate() {
        if let CacheSource::Layer(owner) = layer.mixer.part.cache_source()
            && (owner >= index || spec.layers[owner].mixer.part.cache() != layer.mixer.part.cache())
        {
            let problem = format!("lets layer {index} read the cache of layer {owner}, which has heads of other sizes");
            return Err(source.settings.error(SHARED_CACHES, problem));
        }
        let (rope, rotated) = match &layer.mixer.part {
            MixerSpec::Attention(AttentionSpec { heads, kv_heads, head, rope, .. }) => {
                if *kv_heads == 0 || *heads == 0 || !heads.is_multiple_of(*kv_heads) {
                    let problem = format!("is {kv_heads}, which does not divide {heads} heads");
                    return Err(source.settings.error(KV_HEADS, problem));
                }
                (*rope, *head)
            }
            MixerSpec::Latent(LatentSpec { rope, rotated, .. }) => (Some(*rope), *rotated),
        };
        if let Some(rope) = rope.map(|rope| &spec.ropes[rope])
            && (rope.dimensions > rotated || !rope.dimensions.is_multiple_of(2))
        {
            let problem = format!("is {}, which should be even and at most the head's {rotated}", rope.dimensions);
            return Err(source.settings.error(ROPE_DIMENSIONS, problem));
        }
    }
    Ok(())
}
