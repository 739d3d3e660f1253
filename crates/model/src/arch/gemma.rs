//! Gemma 1, 2 and 3, and what later ones have from them.

use cascadia_kernels::Activation;
use serde_json::Value;

use super::decoder::{bend_logits, each_attention, each_dense, gated_decoder, window, windowed_layers};
use super::keys::*;
use super::positions::{plain_rope, rope_with};
use super::{Family, GgufHabits, Source};
use crate::names::{Form, Rename, common_but};
use crate::rope::RopeStyle;
use crate::settings::{Key, json_float};
use crate::spec::HeadNorm;
use crate::{ModelError, ModelSpec};

const QUERY_SCALE: Key = Key { json: &["query_pre_attn_scalar"], gguf: &["attention.query_pre_attn_scalar"] };

/// Norms are stored as what they add to one.
const fn norm(gguf: &'static str, stored: &'static str) -> Rename {
    Rename { gguf, stored, form: Form::OnePlus }
}

const NORMS: [Rename; 3] = [
    norm("output_norm", "model.norm"),
    norm("blk.{}.attn_norm", "model.layers.{}.input_layernorm"),
    norm("blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"),
];

const NORMS_AROUND: [Rename; 5] = [
    norm("output_norm", "model.norm"),
    norm("blk.{}.attn_norm", "model.layers.{}.input_layernorm"),
    norm("blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"),
    norm("blk.{}.ffn_norm", "model.layers.{}.pre_feedforward_layernorm"),
    norm("blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm"),
];

const HEAD_NORMS: [Rename; 2] = [
    norm("blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm"),
    norm("blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm"),
];

pub(super) const GEMMA: Family = Family {
    names: &["gemma"],
    tensors: |_| Ok(common_but(&NORMS)),
    spec: scaled_decoder,
    gguf: GgufHabits { architecture: "gemma", rope: RopeStyle::Halves },
};

pub(super) const GEMMA2: Family = Family {
    names: &["gemma2"],
    tensors: |_| Ok(common_but(&NORMS_AROUND)),
    spec: |source| {
        let mut spec = normed_around(source)?;
        // Unless the file says otherwise, every other layer has a window, the first included.
        windows(source, &mut spec, 2)?;
        Ok(spec)
    },
    gguf: GgufHabits { architecture: "gemma2", rope: RopeStyle::Halves },
};

pub(super) const GEMMA3: Family = Family {
    names: &["gemma3_text", "gemma3"],
    tensors: |_| Ok(common_but(&[NORMS_AROUND.as_slice(), &HEAD_NORMS].concat())),
    spec: gemma3,
    gguf: GgufHabits { architecture: "gemma3", rope: RopeStyle::Halves },
};

/// Embeddings scaled by the root of their width, and the activation of the family.
pub(super) fn scaled_decoder(source: &Source<'_>) -> Result<ModelSpec, ModelError> {
    let mut spec = gated_decoder(source)?;
    spec.embedding.scale = (spec.width as f32).sqrt();
    // Older configurations name an activation that the authors' code does not use.
    each_dense(&mut spec, |dense| dense.activation = Activation::GeluTanh);
    Ok(spec)
}

/// Norms before and after each branch, soft caps, a scale of its own for scores.
fn normed_around(source: &Source<'_>) -> Result<ModelSpec, ModelError> {
    let settings = &source.settings;
    let mut spec = scaled_decoder(source)?;
    bend_logits(&mut spec, settings.positive(LOGIT_SOFT_CAP)?);
    let soft_cap = settings.positive(ATTENTION_SOFT_CAP)?;
    let score_scale = score_scale(source, &spec)?;
    each_attention(&mut spec, |_, attention| {
        attention.soft_cap = soft_cap;
        attention.score_scale = score_scale.unwrap_or(attention.score_scale);
    });
    norms_around(&mut spec);
    Ok(spec)
}

/// Gives each branch a norm after it.
pub(super) fn norms_around(spec: &mut ModelSpec) {
    for layer in &mut spec.layers {
        layer.mixer.norm_after = Some("post_attention_norm");
        layer.feed_forward.norm_after = Some("post_ffw_norm");
    }
}

/// The scale of scores where it does not follow from the size of heads, as in the largest models.
fn score_scale(source: &Source<'_>, spec: &ModelSpec) -> Result<Option<f32>, ModelError> {
    const LARGEST: [usize; 2] = [46, 62];
    if let Some(scalar) = source.settings.positive(QUERY_SCALE)? {
        return Ok(Some(1.0 / scalar.sqrt()));
    }
    let heads = source.settings.require_count(HEADS, MOST_WIDTH)?;
    let unsaid = source.settings.positive(ATTENTION_SCALE)?.is_none();
    let largest = unsaid && LARGEST.contains(&spec.layers.len());
    Ok(largest.then(|| 1.0 / ((spec.width / heads) as f32).sqrt()))
}

/// Gives windows to the layers that have one: all but each `period`-th, or as the file lists them.
pub(super) fn windows(source: &Source<'_>, spec: &mut ModelSpec, period: usize) -> Result<(), ModelError> {
    let window = window(source)?;
    let listed = windowed_layers(source, spec.layers.len())?;
    each_attention(spec, |layer, attention| {
        let has_window = listed.as_ref().map_or((layer + 1) % period != 0, |listed| listed[layer]);
        attention.window = window.filter(|_| has_window);
    });
    Ok(())
}

fn gemma3(source: &Source<'_>) -> Result<ModelSpec, ModelError> {
    let settings = &source.settings;
    let mut spec = normed_around(source)?;
    let period = settings.config()["sliding_window_pattern"].as_u64().unwrap_or(6).max(1) as usize;
    windows(source, &mut spec, period)?;
    head_norms_and_ropes(source, &mut spec)?;
    Ok(spec)
}

/// Gives queries and keys a norm, and layers that see everything and layers with a window each their own encoding.
pub(super) fn head_norms_and_ropes(source: &Source<'_>, spec: &mut ModelSpec) -> Result<(), ModelError> {
    let settings = &source.settings;
    let head = spec.layers[0].mixer.part.cache().key;
    let by_type = &settings.config()["rope_parameters"];
    let local = if let Value::Object(_) = by_type["sliding_attention"] {
        spec.ropes[0] = rope_with(source, &by_type["full_attention"], head)?;
        let base = json_float(&by_type["sliding_attention"]["rope_theta"]);
        base.map_err(|problem| settings.error(ROPE_LOCAL_BASE, problem))?
    } else {
        settings.positive(ROPE_LOCAL_BASE)?
    };
    spec.ropes.push(plain_rope(source.rope_style, local.unwrap_or(10_000.0), head));
    each_attention(spec, |_, attention| {
        attention.head_norm = Some(HeadNorm::EachHead);
        attention.rope = Some(usize::from(attention.window.is_some()));
    });
    Ok(())
}
