//! BERT, and RoBERTa with XLM-R: learned positions, norms after every sum.

use super::encoder::{encoder_with_norms_after, learn_positions};
use super::keys::*;
use super::{Family, GgufHabits, Source};
use crate::names::{Rename, same};
use crate::rope::RopeStyle;
use crate::{ModelError, ModelSpec};

const GGUF: GgufHabits = GgufHabits { architecture: "bert", rope: RopeStyle::Halves };

pub(super) const BERT: Family = Family {
    names: &["bert"],
    tensors: |_| Ok(names([same("cls", "pooler.dense"), same("cls.output", "classifier")])),
    spec: |source| spec(source, 0),
    gguf: GGUF,
};

pub(super) const ROBERTA: Family = Family {
    names: &["roberta", "xlm-roberta", "camembert"],
    tensors: |_| Ok(names([same("cls", "classifier.dense"), same("cls.output", "classifier.out_proj")])),
    // Positions count from the one after that of padding.
    spec: |source| spec(source, 1 + source.settings.count_or_none(PADDING, MOST_CONTEXT)?.unwrap_or(0)),
    gguf: GGUF,
};

/// The names of both, with those of their classifiers.
fn names(classifier: [Rename; 2]) -> Vec<Rename> {
    let common = [
        same("token_embd", "embeddings.word_embeddings"),
        same("position_embd", "embeddings.position_embeddings"),
        same("token_types", "embeddings.token_type_embeddings"),
        same("token_embd_norm", "embeddings.LayerNorm"),
        same("blk.{}.attn_q", "encoder.layer.{}.attention.self.query"),
        same("blk.{}.attn_k", "encoder.layer.{}.attention.self.key"),
        same("blk.{}.attn_v", "encoder.layer.{}.attention.self.value"),
        same("blk.{}.attn_output", "encoder.layer.{}.attention.output.dense"),
        same("blk.{}.attn_output_norm", "encoder.layer.{}.attention.output.LayerNorm"),
        same("blk.{}.ffn_up", "encoder.layer.{}.intermediate.dense"),
        same("blk.{}.ffn_down", "encoder.layer.{}.output.dense"),
        same("blk.{}.layer_output_norm", "encoder.layer.{}.output.LayerNorm"),
    ];
    common.into_iter().chain(classifier).collect()
}

fn spec(source: &Source<'_>, first_position: usize) -> Result<ModelSpec, ModelError> {
    let mut spec = encoder_with_norms_after(source)?;
    learn_positions(source, &mut spec, first_position)?;
    Ok(spec)
}
