//! GPT-NeoX and Pythia.

use super::decoder::plain_decoder;
use super::keys::*;
use super::{Family, GgufHabits, Source};
use crate::names::{Form, Rename, same};
use crate::rope::RopeStyle;
use crate::settings::Settings;
use crate::spec::BranchOrder;
use crate::{ModelError, ModelSpec};

pub(super) const FAMILY: Family = Family {
    names: &["gpt_neox", "gptneox"],
    tensors,
    spec,
    gguf: GgufHabits { architecture: "gptneox", rope: RopeStyle::Halves },
};

fn tensors(settings: &Settings<'_>) -> Result<Vec<Rename>, ModelError> {
    let heads = settings.require_count(HEADS, MOST_WIDTH)?;
    let form = Form::GroupedHeads { heads, kv_heads: heads };
    Ok(vec![
        same("token_embd", "gpt_neox.embed_in"),
        same("output_norm", "gpt_neox.final_layer_norm"),
        same("output", "embed_out"),
        same("output", "lm_head"),
        same("blk.{}.attn_norm", "gpt_neox.layers.{}.input_layernorm"),
        same("blk.{}.ffn_norm", "gpt_neox.layers.{}.post_attention_layernorm"),
        Rename { gguf: "blk.{}.attn_qkv", stored: "gpt_neox.layers.{}.attention.query_key_value", form },
        same("blk.{}.attn_output", "gpt_neox.layers.{}.attention.dense"),
        same("blk.{}.ffn_up", "gpt_neox.layers.{}.mlp.dense_h_to_4h"),
        same("blk.{}.ffn_down", "gpt_neox.layers.{}.mlp.dense_4h_to_h"),
    ])
}

fn spec(source: &Source<'_>) -> Result<ModelSpec, ModelError> {
    let mut spec = plain_decoder(source)?;
    if source.settings.flag(PARALLEL)?.unwrap_or(true) {
        spec.layers.iter_mut().for_each(|layer| layer.order = BranchOrder::AtOnce);
    }
    Ok(spec)
}
