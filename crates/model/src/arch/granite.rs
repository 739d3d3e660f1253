//! Granite: Llama with scales for embeddings, residuals, scores and logits.

use super::decoder::gated_decoder;
use super::keys::*;
use super::{Family, GgufHabits, Source};
use crate::names::COMMON;
use crate::rope::RopeStyle;
use crate::{ModelError, ModelSpec};

pub(super) const FAMILY: Family = Family {
    names: &["granite"],
    tensors: |_| Ok(COMMON.to_vec()),
    spec,
    gguf: GgufHabits { architecture: "granite", rope: RopeStyle::Interleaved },
};

fn spec(source: &Source<'_>) -> Result<ModelSpec, ModelError> {
    let settings = &source.settings;
    let mut spec = gated_decoder(source)?;
    spec.embedding.scale = settings.positive(EMBEDDING_SCALE)?.unwrap_or(1.0);
    // Logits are divided by what both kinds of files call their scale.
    spec.head.scale = 1.0 / settings.positive(LOGIT_SCALE)?.unwrap_or(1.0);
    let residual_scale = settings.positive(RESIDUAL_SCALE)?.unwrap_or(1.0);
    spec.layers.iter_mut().for_each(|layer| layer.residual_scale = residual_scale);
    Ok(spec)
}
