//! Qwen2, Qwen2.5 and Qwen3, also with experts.

use cascadia_weights::FileKind;

use super::decoder::{each_attention, gated_decoder, window, windowed_layers};
use super::experts::{EXPERTS, NORMALIZED, with_experts};
use super::{Family, GgufHabits, Source};
use crate::names::{COMMON, Rename, common_but, same};
use crate::rope::RopeStyle;
use crate::spec::HeadNorm;
use crate::{ModelError, ModelSpec};

pub(super) const QWEN2: Family = Family {
    names: &["qwen2"],
    tensors: |_| Ok(COMMON.to_vec()),
    spec: |source| {
        let mut spec = windowed_decoder(source)?;
        each_attention(&mut spec, |_, attention| attention.qkv_bias = true);
        Ok(spec)
    },
    gguf: GgufHabits { architecture: "qwen2", rope: RopeStyle::Halves },
};

pub(super) const QWEN2_EXPERTS: Family = Family {
    names: &["qwen2_moe", "qwen2moe"],
    tensors: |_| Ok(common_but(&EXPERTS)),
    spec: |source| {
        let mut spec = windowed_decoder(source)?;
        with_experts(source, &mut spec, |_| {})?;
        Ok(spec)
    },
    gguf: GgufHabits { architecture: "qwen2moe", rope: RopeStyle::Halves },
};

const HEAD_NORMS: [Rename; 2] = [
    same("blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm"),
    same("blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm"),
];

pub(super) const QWEN3: Family = Family {
    names: &["qwen3"],
    tensors: |_| Ok(common_but(&HEAD_NORMS)),
    spec: normed_decoder,
    gguf: GgufHabits { architecture: "qwen3", rope: RopeStyle::Halves },
};

pub(super) const QWEN3_EXPERTS: Family = Family {
    names: &["qwen3_moe", "qwen3moe"],
    tensors: |_| Ok(common_but(&[HEAD_NORMS.as_slice(), &EXPERTS].concat())),
    spec: |source| {
        let mut spec = normed_decoder(source)?;
        // GGUF files of this family rarely say that weights are normalised.
        let unsaid = source.settings.files.kind() == FileKind::Gguf && !source.settings.has(NORMALIZED);
        with_experts(source, &mut spec, |experts| experts.router.normalized |= unsaid)?;
        Ok(spec)
    },
    gguf: GgufHabits { architecture: "qwen3moe", rope: RopeStyle::Halves },
};

/// Norms of queries and keys.
fn normed_decoder(source: &Source<'_>) -> Result<ModelSpec, ModelError> {
    let mut spec = windowed_decoder(source)?;
    each_attention(&mut spec, |_, attention| attention.head_norm = Some(HeadNorm::EachHead));
    Ok(spec)
}

/// The window is written down even where it is switched off.
fn windowed_decoder(source: &Source<'_>) -> Result<ModelSpec, ModelError> {
    let mut spec = gated_decoder(source)?;
    let config = source.settings.config();
    let listed = windowed_layers(source, spec.layers.len())?;
    let used = match source.settings.files.kind() {
        FileKind::HuggingFace => config["use_sliding_window"].as_bool() == Some(true),
        FileKind::Gguf => listed.is_some(),
    };
    if used {
        let window = window(source)?;
        let first = config["max_window_layers"].as_u64().unwrap_or(0) as usize;
        each_attention(&mut spec, |layer, attention| {
            let has_window = listed.as_ref().map_or(layer >= first, |listed| listed[layer]);
            attention.window = window.filter(|_| has_window);
        });
    }
    Ok(spec)
}
