//! Granite: Llama with scales for embeddings, residuals, scores and logits, also with experts.

use super::decoder::gated_decoder;
use super::experts::with_experts;
use super::keys::*;
use super::{Family, GgufHabits, Source};
use crate::names::{COMMON, Form, Half, Rename, common_but, same};
use crate::rope::RopeStyle;
use crate::{ModelError, ModelSpec};

pub(super) const FAMILY: Family = Family {
    names: &["granite"],
    tensors: |_| Ok(COMMON.to_vec()),
    spec,
    gguf: GgufHabits { architecture: "granite", rope: RopeStyle::Interleaved },
};

const fn half(gguf: &'static str, half: Half) -> Rename {
    Rename { gguf, stored: "model.layers.{}.block_sparse_moe.input_linear", form: Form::Rows(half) }
}

const NAMES: [Rename; 4] = [
    same("blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.router.layer"),
    half("blk.{}.ffn_gate_exps", Half::First),
    half("blk.{}.ffn_up_exps", Half::Second),
    same("blk.{}.ffn_down_exps", "model.layers.{}.block_sparse_moe.output_linear"),
];

pub(super) const EXPERTS: Family = Family {
    names: &["granitemoe"],
    tensors: |_| Ok(common_but(&NAMES)),
    spec: |source| {
        let mut spec = spec(source)?;
        with_experts(source, &mut spec, |experts| experts.router.normalized = true)?;
        Ok(spec)
    },
    gguf: GgufHabits { architecture: "granitemoe", rope: RopeStyle::Interleaved },
};

fn spec(source: &Source<'_>) -> Result<ModelSpec, ModelError> {
    let settings = &source.settings;
    let mut spec = gated_decoder(source)?;
    spec.embedding.scale = settings.positive(EMBEDDING_SCALE)?.unwrap_or(1.0);
    // Logits are divided by what both kinds of files call their scale.
    let logit_scale = 1.0 / settings.positive(LOGIT_SCALE)?.unwrap_or(1.0);
    spec.head.iter_mut().for_each(|head| head.scale = logit_scale);
    let residual_scale = settings.positive(RESIDUAL_SCALE)?.unwrap_or(1.0);
    spec.layers.iter_mut().for_each(|layer| layer.residual_scale = residual_scale);
    Ok(spec)
}
