//! Model families: the only files that know their names. Settings in, `ModelSpec` out.

mod llama;
mod qwen;

use cascadia_weights::{FileKind, ModelFiles};
use serde_json::Value;

use crate::names::in_file;
use crate::rope::{RopeSpec, RopeStyle, WavelengthScaling, frequencies};
use crate::settings::{Key, Settings, json_float};
use crate::{CachePrecision, LayerSpec, ModelError, ModelSpec};

/// A family: the names it goes by and how its settings become a specification.
struct Family {
    /// `model_type` in config.json, or `general.architecture` in GGUF.
    names: &'static [&'static str],
    spec: fn(&Settings<'_>) -> Result<ModelSpec, ModelError>,
    /// What GGUF calls it, and how it lays out rotated heads there.
    gguf: GgufHabits,
}

/// How a family is written to GGUF.
#[derive(Clone, Copy)]
pub(crate) struct GgufHabits {
    pub(crate) architecture: &'static str,
    pub(crate) rope: RopeStyle,
}

const FAMILIES: [Family; 2] = [
    Family { names: &["llama", "mistral"], spec: llama::spec, gguf: llama::GGUF },
    Family { names: &["qwen2"], spec: qwen::spec, gguf: qwen::GGUF },
];

const LAYERS: Key = Key { json: "num_hidden_layers", gguf: "block_count" };
const WIDTH: Key = Key { json: "hidden_size", gguf: "embedding_length" };
const CONTEXT: Key = Key { json: "max_position_embeddings", gguf: "context_length" };
const FEED_FORWARD: Key = Key { json: "intermediate_size", gguf: "feed_forward_length" };
const HEADS: Key = Key { json: "num_attention_heads", gguf: "attention.head_count" };
const KV_HEADS: Key = Key { json: "num_key_value_heads", gguf: "attention.head_count_kv" };
const HEAD: Key = Key { json: "head_dim", gguf: "attention.key_length" };
const VALUE_HEAD: Key = Key { json: "v_head_dim", gguf: "attention.value_length" };
const EPSILON: Key = Key { json: "rms_norm_eps", gguf: "attention.layer_norm_rms_epsilon" };
const WINDOW: Key = Key { json: "sliding_window", gguf: "attention.sliding_window" };
const ROPE_BASE: Key = Key { json: "rope_theta", gguf: "rope.freq_base" };
const ROPE_DIMENSIONS: Key = Key { json: "rope_dim", gguf: "rope.dimension_count" };
const ROPE_SCALING: Key = Key { json: "rope_scaling", gguf: "rope.scaling.type" };
const ROPE_FACTOR: Key = Key { json: "factor", gguf: "rope.scaling.factor" };
const ACTIVATION: Key = Key { json: "hidden_act", gguf: "hidden_act" };

/// Largest values that any real model comes near; more is a damaged file, not a large model.
const MOST_LAYERS: u32 = 4096;
const MOST_WIDTH: u32 = 1 << 20;
const MOST_CONTEXT: u32 = 1 << 28;

/// Reads the specification of a model of any family.
pub(crate) fn spec(files: &ModelFiles) -> Result<ModelSpec, ModelError> {
    let settings = Settings::read(files)?;
    (family(files, &settings.architecture)?.spec)(&settings)
}

/// How the family called `architecture` is written to GGUF.
pub(crate) fn gguf_habits(files: &ModelFiles, architecture: &str) -> Result<GgufHabits, ModelError> {
    Ok(family(files, architecture)?.gguf)
}

fn family(files: &ModelFiles, architecture: &str) -> Result<&'static Family, ModelError> {
    FAMILIES.iter().find(|family| family.names.contains(&architecture)).ok_or_else(|| {
        let supported: Vec<&str> = FAMILIES.iter().flat_map(|family| family.names).copied().collect();
        ModelError::Architecture {
            path: files.path().to_owned(),
            name: architecture.to_owned(),
            supported: supported.join(", "),
        }
    })
}

/// A decoder of equal layers with gated feed-forward parts: what most families are, with a few fields changed.
fn gated_decoder(settings: &Settings<'_>, rope_style: RopeStyle) -> Result<ModelSpec, ModelError> {
    let files = settings.files;
    if let Some(activation) = settings.config()["hidden_act"].as_str().filter(|name| *name != "silu") {
        return Err(settings.error(ACTIVATION, format!("is `{activation}`; this version runs `silu`")));
    }
    let width = settings.require_count(WIDTH, MOST_WIDTH)?;
    let heads = settings.require_count(HEADS, MOST_WIDTH)?;
    let kv_heads = settings.count(KV_HEADS, MOST_WIDTH)?.unwrap_or(heads);
    if !heads.is_multiple_of(kv_heads) {
        return Err(settings.error(KV_HEADS, format!("is {kv_heads}, which does not divide {heads} heads")));
    }
    let head = match settings.count(HEAD, MOST_WIDTH)? {
        Some(head) => head,
        None if width.is_multiple_of(heads) => width / heads,
        None => return Err(settings.error(HEADS, format!("is {heads}, which does not divide a width of {width}"))),
    };
    if let Some(other) = settings.count(VALUE_HEAD, MOST_WIDTH)?.filter(|value_head| *value_head != head) {
        return Err(settings.error(VALUE_HEAD, format!("is {other}; this version needs it equal to {head}")));
    }
    let embedding = files.require(&in_file(files.kind(), "token_embd.weight"))?;
    let vocabulary = embedding.shape().first().copied().unwrap_or(0) as usize;
    let query = files.require(&in_file(files.kind(), "blk.0.attn_q.weight"))?;
    let has = |name: &str| files.tensor(&in_file(files.kind(), name)).is_some();
    let layer = LayerSpec {
        heads,
        kv_heads,
        head,
        score_scale: 1.0 / (head as f32).sqrt(),
        window: None,
        rope: 0,
        feed_forward: settings.require_count(FEED_FORWARD, 16 * MOST_WIDTH)?,
        qkv_bias: has("blk.0.attn_q.bias"),
        output_bias: has("blk.0.attn_output.bias"),
        feed_forward_bias: has("blk.0.ffn_up.bias"),
    };
    Ok(ModelSpec {
        architecture: settings.architecture.clone(),
        vocabulary,
        width,
        context: settings.count(CONTEXT, MOST_CONTEXT)?.unwrap_or(2048) as u32,
        layers: vec![layer; settings.require_count(LAYERS, MOST_LAYERS)?],
        ropes: vec![rope(settings, rope_style, head)?],
        epsilon: settings.positive(EPSILON)?.ok_or_else(|| settings.error(EPSILON, "is missing"))?,
        tied_output: !has("output.weight"),
        cache: CachePrecision::for_weights(query.dtype()),
    })
}

/// The position encoding, with the scalings of this version.
fn rope(settings: &Settings<'_>, style: RopeStyle, head: usize) -> Result<RopeSpec, ModelError> {
    // Newer configurations keep everything in `rope_parameters`, older ones in `rope_scaling` and `rope_theta`.
    let config = settings.config();
    let nested =
        if config["rope_parameters"].is_object() { &config["rope_parameters"] } else { &config["rope_scaling"] };
    let nested_base = json_float(&nested["rope_theta"]).map_err(|problem| settings.error(ROPE_BASE, problem))?;
    let base = match nested_base {
        Some(base) if base.is_finite() && base > 0.0 => base,
        Some(base) => {
            return Err(settings.error(ROPE_BASE, format!("is {base}, which should be finite and above zero")));
        }
        None => settings.positive(ROPE_BASE)?.unwrap_or(10_000.0),
    };
    let dimensions = settings.count(ROPE_DIMENSIONS, MOST_WIDTH)?.unwrap_or(head);
    if dimensions > head || !dimensions.is_multiple_of(2) {
        let problem = format!("is {dimensions}, which should be even and at most the head's {head}");
        return Err(settings.error(ROPE_DIMENSIONS, problem));
    }
    let mut frequencies = frequencies(base, dimensions);
    match settings.files.kind() {
        FileKind::HuggingFace => scale_by_config(settings, nested, &mut frequencies)?,
        FileKind::Gguf => scale_by_metadata(settings, &mut frequencies)?,
    }
    Ok(RopeSpec { style, base, frequencies })
}

fn scale_by_config(settings: &Settings<'_>, scaling: &Value, frequencies: &mut [f32]) -> Result<(), ModelError> {
    let number = |name: &str| match json_float(&scaling[name]) {
        Ok(Some(number)) if number.is_finite() && number > 0.0 => Ok(number),
        _ => Err(settings.error(ROPE_SCALING, format!("has no usable `{name}`: {}", scaling[name]))),
    };
    let kind = scaling["rope_type"].as_str().or(scaling["type"].as_str()).unwrap_or("default");
    match kind {
        "default" => {}
        "linear" => {
            let factor = number("factor")?;
            frequencies.iter_mut().for_each(|frequency| *frequency /= factor);
        }
        "llama3" => {
            let scaling = WavelengthScaling {
                factor: number("factor")?,
                low: number("low_freq_factor")?,
                high: number("high_freq_factor")?,
                original_context: number("original_max_position_embeddings")?,
            };
            frequencies.iter_mut().for_each(|frequency| *frequency /= scaling.divisor(*frequency));
        }
        other => {
            let problem = format!("is of type `{other}`; this version runs default, linear and llama3");
            return Err(settings.error(ROPE_SCALING, problem));
        }
    }
    Ok(())
}

fn scale_by_metadata(settings: &Settings<'_>, frequencies: &mut [f32]) -> Result<(), ModelError> {
    let metadata = settings.files.metadata();
    match metadata.value::<&str>(&settings.name(ROPE_SCALING))? {
        None | Some("none") => {}
        Some("linear") => {
            let factor = settings.positive(ROPE_FACTOR)?.ok_or_else(|| settings.error(ROPE_FACTOR, "is missing"))?;
            frequencies.iter_mut().for_each(|frequency| *frequency /= factor);
        }
        Some(other) => {
            return Err(settings.error(ROPE_SCALING, format!("is `{other}`; this version runs none and linear")));
        }
    }
    // Llama 3's scaling arrives as a tensor of divisors.
    if let Some(divisors) = crate::assemble::vector(settings.files, "rope_freqs.weight", frequencies.len())? {
        if let Some(bad) = divisors.iter().find(|divisor| !(divisor.is_finite() && **divisor > 0.0)) {
            return Err(settings.error(ROPE_SCALING, format!("comes with a divisor of {bad} in `rope_freqs.weight`")));
        }
        frequencies.iter_mut().zip(divisors).for_each(|(frequency, divisor)| *frequency /= divisor);
    }
    Ok(())
}
