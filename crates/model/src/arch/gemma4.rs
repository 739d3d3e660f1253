//! Gemma 4: layers with and without a window have heads of different sizes, the last layers read caches of earlier ones,
//! each layer may have an input of its own, and experts beside its dense part.

use cascadia_kernels::Activation;
use cascadia_weights::FileKind;
use serde_json::{Value, json};

use super::decoder::{bend_logits, each_attention, share_caches};
use super::experts::{half, with_experts};
use super::gemma::{norms_around, scaled_decoder, windows};
use super::keys::*;
use super::positions::{plain_rope, rope_with};
use super::{Family, GgufHabits, Source};
use crate::names::{Half, Rename, common_but, same};
use crate::rope::RopeStyle;
use crate::settings::{Key, json_float};
use crate::spec::{Branch, DenseAndExpertsSpec, FeedForwardSpec, HeadNorm, PerLayerSpec, ValueSource};
use crate::{ModelError, ModelSpec};

const LOCAL_HEAD: Key = Key { json: &["head_dim"], gguf: &["attention.key_length_swa"] };
const FULL_HEAD: Key = Key { json: &["global_head_dim"], gguf: &["attention.key_length"] };
const FULL_KV_HEADS: Key = Key { json: &["num_global_key_value_heads"], gguf: &["attention.head_count_kv"] };
const BOTH_WAYS: Key = Key { json: &["use_bidirectional_attention"], gguf: &["attention.causal"] };

/// One layer in so many sees everything, unless the file lists them.
const PERIOD: usize = 6;

/// What the newer families share: norms stored as they are, and inputs of single layers.
pub(super) const SHARED_NAMES: [Rename; 11] = [
    same("blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"),
    same("blk.{}.ffn_norm", "model.layers.{}.pre_feedforward_layernorm"),
    same("blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm"),
    same("blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm"),
    same("blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm"),
    same("blk.{}.inp_gate", "model.layers.{}.per_layer_input_gate"),
    same("blk.{}.proj", "model.layers.{}.per_layer_projection"),
    same("blk.{}.post_norm", "model.layers.{}.post_per_layer_input_norm"),
    same("per_layer_token_embd", "model.embed_tokens_per_layer"),
    same("per_layer_model_proj", "model.per_layer_model_projection"),
    same("per_layer_proj_norm", "model.per_layer_projection_norm"),
];

const NAMES: [Rename; 10] = [
    same("blk.{}.layer_output_scale.weight", "model.layers.{}.layer_scalar"),
    same("blk.{}.post_ffw_norm_1", "model.layers.{}.post_feedforward_layernorm_1"),
    same("blk.{}.pre_ffw_norm_2", "model.layers.{}.pre_feedforward_layernorm_2"),
    same("blk.{}.post_ffw_norm_2", "model.layers.{}.post_feedforward_layernorm_2"),
    same("blk.{}.ffn_gate_inp", "model.layers.{}.router.proj"),
    same("blk.{}.ffn_gate_inp.scale", "model.layers.{}.router.scale"),
    same("blk.{}.ffn_down_exps.scale", "model.layers.{}.router.per_expert_scale"),
    half("blk.{}.ffn_gate_exps.weight", "model.layers.{}.experts.gate_up_proj", Half::First),
    half("blk.{}.ffn_up_exps.weight", "model.layers.{}.experts.gate_up_proj", Half::Second),
    same("blk.{}.ffn_down_exps.weight", "model.layers.{}.experts.down_proj"),
];

pub(super) const FAMILY: Family = Family {
    names: &["gemma4_text", "gemma4_unified_text", "gemma4"],
    tensors: |_| Ok(common_but(&[SHARED_NAMES.as_slice(), &NAMES].concat())),
    spec,
    gguf: GgufHabits { architecture: "gemma4", rope: RopeStyle::Halves },
};

fn spec(source: &Source<'_>) -> Result<ModelSpec, ModelError> {
    let settings = &source.settings;
    if settings.config()["use_bidirectional_attention"] == "all" {
        return Err(settings.error(BOTH_WAYS, "is `all`; this version lets tokens read only those before them"));
    }
    let mut spec = scaled_decoder(source)?;
    bend_logits(&mut spec, settings.positive(LOGIT_SOFT_CAP)?);
    norms_around(&mut spec);
    windows(source, &mut spec, PERIOD)?;
    heads(source, &mut spec)?;
    let sharing = share_caches(source, &mut spec)?;
    if settings.config()["use_double_wide_mlp"] == true {
        for layer in &mut spec.layers[sharing..] {
            if let FeedForwardSpec::Dense(dense) = &mut layer.feed_forward.part {
                dense.inner *= 2;
            }
        }
    }
    for (index, layer) in spec.layers.iter_mut().enumerate() {
        layer.output_scaled = source.catalog.has(&format!("blk.{index}.layer_output_scale.weight"));
    }
    spec.per_layer = per_layer(source, spec.width)?;
    if settings.config()["enable_moe_block"] == true || source.catalog.has("blk.0.ffn_gate_inp.weight") {
        dense_and_experts(source, &mut spec)?;
    }
    Ok(spec)
}

/// Puts experts beside the dense part of every layer that has a router.
fn dense_and_experts(source: &Source<'_>, spec: &mut ModelSpec) -> Result<(), ModelError> {
    let parts: Vec<FeedForwardSpec> = spec.layers.iter().map(|layer| layer.feed_forward.part.clone()).collect();
    with_experts(source, spec, |experts| {
        experts.router.normalized = true;
        experts.router.expert_scaled = true;
    })?;
    let router_scale = 1.0 / (spec.width as f32).sqrt();
    for (Branch { norm_before, part, .. }, dense) in
        spec.layers.iter_mut().map(|layer| &mut layer.feed_forward).zip(parts)
    {
        if let (FeedForwardSpec::Dense(dense), FeedForwardSpec::Experts(experts)) = (dense, &*part) {
            let dense = Branch {
                norm_before: norm_before.take(),
                part: dense,
                norm_after: Some("post_ffw_norm_1"),
                norm_of_sum: None,
            };
            let (before, after) = (Some("pre_ffw_norm_2"), Some("post_ffw_norm_2"));
            let experts = Branch { norm_before: before, part: experts.clone(), norm_after: after, norm_of_sum: None };
            *part = FeedForwardSpec::DenseAndExperts(Box::new(DenseAndExpertsSpec { dense, experts, router_scale }));
        }
    }
    Ok(())
}

/// Heads and positions of the two kinds of layers.
fn heads(source: &Source<'_>, spec: &mut ModelSpec) -> Result<(), ModelError> {
    let settings = &source.settings;
    let (config, folder) = (settings.config(), settings.files.kind() == FileKind::HuggingFace);
    let local = settings.require_count(LOCAL_HEAD, MOST_WIDTH)?;
    // What newer configurations list layer by layer, older ones have for all that see everything.
    let full_layer = spec.layers.iter().position(|layer| layer.mixer.part.cache().window.is_none()).unwrap_or(0);
    let listed = &config["per_layer_config"][full_layer.to_string()];
    let size = |listed: &Value, key: Key| match listed {
        Value::Null => settings.count(key, MOST_WIDTH),
        listed => match listed.as_u64().filter(|size| (1..=u64::from(MOST_WIDTH)).contains(size)) {
            Some(size) => Ok(Some(size as usize)),
            None => Err(settings.error(key, format!("is {listed} in `per_layer_config`, outside 1..={MOST_WIDTH}"))),
        },
    };
    let full = size(&listed["head_dim"], FULL_HEAD)?.unwrap_or(512);
    let one_projection = config["attention_k_eq_v"] == true;
    let full_kv_heads = match folder && one_projection {
        true => size(&listed["num_key_value_heads"], FULL_KV_HEADS)?,
        false => None,
    };
    each_attention(spec, |layer, attention| {
        let sees_all = attention.window.is_none();
        attention.head = if sees_all { full } else { local };
        attention.kv_heads = full_kv_heads.filter(|_| sees_all).unwrap_or(attention.kv_heads);
        attention.score_scale = 1.0;
        attention.head_norm = Some(HeadNorm::EachHead);
        attention.values_normed = true;
        attention.rope = Some(usize::from(!sees_all));
        let no_values = match folder {
            true => one_projection && sees_all,
            false => !source.catalog.has(&format!("blk.{layer}.attn_v.weight")),
        };
        attention.values = if no_values { ValueSource::Keys } else { ValueSource::Projection };
    });
    ropes(source, spec, full, local)
}

fn ropes(source: &Source<'_>, spec: &mut ModelSpec, full: usize, local: usize) -> Result<(), ModelError> {
    let settings = &source.settings;
    let usual = json!({"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1_000_000.0});
    let by_type = &settings.config()["rope_parameters"];
    let base = match settings.files.kind() {
        FileKind::HuggingFace => {
            let named = &by_type["full_attention"];
            spec.ropes[0] = rope_with(source, if named.is_object() { named } else { &usual }, full)?;
            let base = json_float(&by_type["sliding_attention"]["rope_theta"]);
            base.map_err(|problem| settings.error(ROPE_LOCAL_BASE, problem))?
        }
        FileKind::Gguf => settings.positive(ROPE_LOCAL_BASE)?,
    };
    let dimensions = settings.count(ROPE_LOCAL_DIMENSIONS, MOST_WIDTH)?.unwrap_or(local);
    spec.ropes.push(plain_rope(source.rope_style, base.unwrap_or(10_000.0), dimensions));
    Ok(())
}

/// Inputs of single layers, where the model has them.
pub(super) fn per_layer(source: &Source<'_>, width: usize) -> Result<Option<PerLayerSpec>, ModelError> {
    let Some(inner) = source.settings.count_or_none(PER_LAYER_WIDTH, MOST_WIDTH)? else { return Ok(None) };
    let table = source.catalog.require("per_layer_token_embd.weight")?;
    Ok(Some(PerLayerSpec {
        width: inner,
        tokens: table.shape().first().map_or(0, |&tokens| tokens as usize),
        table_scale: (inner as f32).sqrt(),
        projection_scale: 1.0 / (width as f32).sqrt(),
        scale: std::f32::consts::FRAC_1_SQRT_2,
        activation: Activation::GeluTanh,
    }))
}
