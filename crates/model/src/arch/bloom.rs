//! BLOOM: ALiBi, a norm after the embedding.

use cascadia_kernels::Activation;

use super::decoder::{each_attention, each_dense, plain_decoder};
use super::keys::*;
use super::{Family, GgufHabits, Source};
use crate::names::{Form, Rename, same};
use crate::rope::RopeStyle;
use crate::settings::Settings;
use crate::spec::AlibiSpec;
use crate::{ModelError, ModelSpec};

pub(super) const FAMILY: Family =
    Family { names: &["bloom"], tensors, spec, gguf: GgufHabits { architecture: "bloom", rope: RopeStyle::Halves } };

fn tensors(settings: &Settings<'_>) -> Result<Vec<Rename>, ModelError> {
    let heads = settings.require_count(HEADS, MOST_WIDTH)?;
    let form = Form::GroupedHeads { heads, kv_heads: heads };
    Ok(vec![
        same("token_embd", "word_embeddings"),
        same("token_embd_norm", "word_embeddings_layernorm"),
        same("output_norm", "ln_f"),
        same("output", "lm_head"),
        same("blk.{}.attn_norm", "h.{}.input_layernorm"),
        same("blk.{}.ffn_norm", "h.{}.post_attention_layernorm"),
        Rename { gguf: "blk.{}.attn_qkv", stored: "h.{}.self_attention.query_key_value", form },
        same("blk.{}.attn_output", "h.{}.self_attention.dense"),
        same("blk.{}.ffn_up", "h.{}.mlp.dense_h_to_4h"),
        same("blk.{}.ffn_down", "h.{}.mlp.dense_4h_to_h"),
    ])
}

fn spec(source: &Source<'_>) -> Result<ModelSpec, ModelError> {
    let mut spec = plain_decoder(source)?;
    spec.embedding.normed = true;
    each_dense(&mut spec, |dense| dense.activation = Activation::GeluTanh);
    each_attention(&mut spec, |_, attention| {
        attention.rope = None;
        attention.alibi = Some(AlibiSpec { steepest: 8.0, scale: 1.0 });
    });
    Ok(spec)
}
