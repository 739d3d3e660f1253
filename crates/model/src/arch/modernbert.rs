//! ModernBERT: rotary positions, windows that reach both ways in most layers, gated feed-forward parts.

use cascadia_kernels::Activation;
use cascadia_weights::FileKind;

use super::decoder::{each_attention, each_dense, windowed_layers};
use super::encoder::encoder;
use super::keys::*;
use super::positions::{plain_rope, rope_with};
use super::{Family, GgufHabits, Source};
use crate::names::{Rename, same};
use crate::rope::RopeStyle;
use crate::settings::{Key, Settings};
use crate::spec::{ClassifierActivation, Gate, NormKind, PooledRows};
use crate::{ModelError, ModelSpec};

/// Positions that a window has in all, on both sides.
const LOCAL: Key = Key { json: &["local_attention"], gguf: &["attention.sliding_window"] };
const PERIOD: Key = Key { json: &["global_attn_every_n_layers"], gguf: &["attention.sliding_window_pattern"] };
const GLOBAL_BASE: Key = Key { json: &["global_rope_theta"], gguf: &["rope.freq_base"] };
const LOCAL_BASE: Key = Key { json: &["local_rope_theta"], gguf: &["rope.freq_base_swa"] };

pub(super) const FAMILY: Family = Family {
    names: &["modernbert", "modern-bert"],
    tensors,
    spec,
    gguf: GgufHabits { architecture: "modern-bert", rope: RopeStyle::Halves },
};

fn tensors(_: &Settings<'_>) -> Result<Vec<Rename>, ModelError> {
    let names = [
        same("token_embd", "model.embeddings.tok_embeddings"),
        same("token_embd_norm", "model.embeddings.norm"),
        same("blk.{}.attn_norm", "model.layers.{}.attn_norm"),
        same("blk.{}.attn_qkv", "model.layers.{}.attn.Wqkv"),
        same("blk.{}.attn_output", "model.layers.{}.attn.Wo"),
        same("blk.{}.ffn_norm", "model.layers.{}.mlp_norm"),
        same("blk.{}.ffn_up", "model.layers.{}.mlp.Wi"),
        same("blk.{}.ffn_down", "model.layers.{}.mlp.Wo"),
        same("output_norm", "model.final_norm"),
    ];
    // Files of the bare model leave the prefix out.
    let bare = names.iter().filter_map(|name| Some(Rename { stored: name.stored.strip_prefix("model.")?, ..*name }));
    let classifier = [same("cls", "head.dense"), same("cls.norm", "head.norm"), same("cls.output", "classifier")];
    Ok(names.iter().copied().chain(bare).chain(classifier).collect())
}

fn spec(source: &Source<'_>) -> Result<ModelSpec, ModelError> {
    let settings = &source.settings;
    let mut spec = encoder(source)?;
    spec.norm.kind = NormKind::Layer { bias: source.catalog.has("output_norm.bias") };
    // What the embedding's norm made is not normalised again.
    spec.layers[0].mixer.norm_before = None;
    each_dense(&mut spec, |dense| (dense.gate, dense.activation) = (Gate::WithUp, Activation::Gelu));
    if let Some(classifier) = &mut spec.pooling.classifier {
        classifier.dense.iter_mut().for_each(|dense| dense.activation = ClassifierActivation::Gelu);
        if settings.config()["classifier_pooling"] == "mean" {
            spec.pooling.rows = PooledRows::Mean;
        }
    }
    let head = spec.ropes[0].dimensions;
    let by_type = &settings.config()["rope_parameters"];
    spec.ropes = match settings.files.kind() {
        FileKind::HuggingFace if by_type["full_attention"].is_object() => vec![
            rope_with(source, &by_type["full_attention"], head)?,
            rope_with(source, &by_type["sliding_attention"], head)?,
        ],
        _ => {
            let base = |key, usual| Ok::<f32, ModelError>(settings.positive(key)?.unwrap_or(usual));
            let (global, local) = (base(GLOBAL_BASE, 160_000.0)?, base(LOCAL_BASE, 10_000.0)?);
            [global, local].map(|base| plain_rope(source.rope_style, base, head)).to_vec()
        }
    };
    let window = 1 + settings.count(LOCAL, MOST_CONTEXT)?.unwrap_or(128) as u32 / 2;
    let listed = windowed_layers(source, spec.layers.len())?;
    let period = settings.count(PERIOD, MOST_LAYERS)?.unwrap_or(3);
    each_attention(&mut spec, |layer, attention| {
        let is_local = listed.as_ref().map_or(layer % period != 0, |listed| listed[layer]);
        (attention.window, attention.rope) = (is_local.then_some(window), Some(usize::from(is_local)));
    });
    Ok(spec)
}
