//! NomicBERT: BERT with rotary positions and gated feed-forward parts.

use cascadia_kernels::Activation;

use super::decoder::each_dense;
use super::encoder::encoder_with_norms_after;
use super::{Family, GgufHabits, Source};
use crate::names::{Rename, same};
use crate::rope::RopeStyle;
use crate::settings::{Key, Settings};
use crate::spec::Gate;
use crate::{ModelError, ModelSpec};

const SCALING: Key = Key { json: &["rotary_scaling_factor"], gguf: &["rope.scaling.factor"] };

pub(super) const FAMILY: Family = Family {
    names: &["nomic_bert", "nomic-bert"],
    tensors,
    spec,
    gguf: GgufHabits { architecture: "nomic-bert", rope: RopeStyle::Halves },
};

/// The names of the authors' code, and those of transformers.
fn tensors(_: &Settings<'_>) -> Result<Vec<Rename>, ModelError> {
    Ok(vec![
        same("token_embd", "embeddings.word_embeddings"),
        same("token_types", "embeddings.token_type_embeddings"),
        same("token_embd_norm", "emb_ln"),
        same("blk.{}.attn_qkv", "encoder.layers.{}.attn.Wqkv"),
        same("blk.{}.attn_output", "encoder.layers.{}.attn.out_proj"),
        same("blk.{}.attn_output_norm", "encoder.layers.{}.norm1"),
        same("blk.{}.ffn_up", "encoder.layers.{}.mlp.fc11"),
        same("blk.{}.ffn_gate", "encoder.layers.{}.mlp.fc12"),
        same("blk.{}.ffn_down", "encoder.layers.{}.mlp.fc2"),
        same("blk.{}.layer_output_norm", "encoder.layers.{}.norm2"),
        same("token_embd_norm", "embeddings.LayerNorm"),
        same("blk.{}.attn_q", "layers.{}.self_attn.q_proj"),
        same("blk.{}.attn_k", "layers.{}.self_attn.k_proj"),
        same("blk.{}.attn_v", "layers.{}.self_attn.v_proj"),
        same("blk.{}.attn_output", "layers.{}.self_attn.o_proj"),
        same("blk.{}.attn_output_norm", "layers.{}.post_attention_layernorm"),
        same("blk.{}.ffn_up", "layers.{}.mlp.up_proj"),
        same("blk.{}.ffn_gate", "layers.{}.mlp.gate_proj"),
        same("blk.{}.ffn_down", "layers.{}.mlp.down_proj"),
        same("blk.{}.layer_output_norm", "layers.{}.post_mlp_layernorm"),
    ])
}

fn spec(source: &Source<'_>) -> Result<ModelSpec, ModelError> {
    if !source.settings.config()[SCALING.json[0]].is_null() {
        return Err(source.settings.error(SCALING, "is set; this version runs models of this family without it"));
    }
    let mut spec = encoder_with_norms_after(source)?;
    each_dense(&mut spec, |dense| (dense.gate, dense.activation) = (Gate::Own, Activation::Silu));
    Ok(spec)
}
