//! Falcon 7B and 40B (attention and feed-forward side by side), and the first small ones with ALiBi.

use super::decoder::{each_attention, plain_decoder};
use super::keys::*;
use super::{Family, GgufHabits, Source};
use crate::names::{Form, Rename, same};
use crate::rope::RopeStyle;
use crate::settings::{Key, Settings};
use crate::spec::{AlibiSpec, BranchOrder};
use crate::{ModelError, ModelSpec};
use cascadia_weights::FileKind;

const GROUPS: Key = Key { json: &["num_kv_heads", "n_head_kv"], gguf: &["attention.head_count_kv"] };
const NEW: Key = Key { json: &["new_decoder_architecture"], gguf: &["new_decoder_architecture"] };
const MULTI_QUERY: Key = Key { json: &["multi_query"], gguf: &["multi_query"] };
const SIDE_BY_SIDE: Key = Key { json: &["parallel_attn"], gguf: &["use_parallel_residual"] };
const ALIBI_FLAG: Key = Key { json: &["alibi"], gguf: &["attention.alibi"] };

pub(super) const FAMILY: Family = Family {
    names: &["falcon", "RefinedWebModel", "RefinedWeb"],
    tensors,
    spec,
    gguf: GgufHabits { architecture: "falcon", rope: RopeStyle::Halves },
};

fn tensors(settings: &Settings<'_>) -> Result<Vec<Rename>, ModelError> {
    let heads = settings.require_count(HEADS, MOST_WIDTH)?;
    let form = Form::GroupedHeads { heads, kv_heads: kv_heads(settings)? };
    Ok(vec![
        same("token_embd", "word_embeddings"),
        same("output_norm", "ln_f"),
        same("output", "lm_head"),
        same("blk.{}.attn_norm", "h.{}.input_layernorm"),
        // The larger ones give each branch its own norm; GGUF calls that of attention the second.
        same("blk.{}.attn_norm", "h.{}.ln_mlp"),
        same("blk.{}.attn_norm_2", "h.{}.ln_attn"),
        same("blk.{}.ffn_norm", "h.{}.post_attention_layernorm"),
        Rename { gguf: "blk.{}.attn_qkv", stored: "h.{}.self_attention.query_key_value", form },
        same("blk.{}.attn_output", "h.{}.self_attention.dense"),
        same("blk.{}.ffn_up", "h.{}.mlp.dense_h_to_4h"),
        same("blk.{}.ffn_down", "h.{}.mlp.dense_4h_to_h"),
    ])
}

fn kv_heads(settings: &Settings<'_>) -> Result<usize, ModelError> {
    let heads = settings.require_count(HEADS, MOST_WIDTH)?;
    let groups = settings.count(GROUPS, MOST_WIDTH)?;
    Ok(match (settings.files.kind(), settings.flag(NEW)?, settings.flag(MULTI_QUERY)?) {
        (FileKind::Gguf, ..) | (FileKind::HuggingFace, Some(true), _) => groups.unwrap_or(heads),
        (FileKind::HuggingFace, _, Some(true) | None) => 1,
        (FileKind::HuggingFace, _, Some(false)) => heads,
    })
}

fn spec(source: &Source<'_>) -> Result<ModelSpec, ModelError> {
    let (settings, catalog) = (&source.settings, &source.catalog);
    let mut spec = plain_decoder(source)?;
    let kv_heads = kv_heads(settings)?;
    let alibi = settings.flag(ALIBI_FLAG)?.unwrap_or(false);
    each_attention(&mut spec, |_, attention| {
        attention.kv_heads = kv_heads;
        // Here the penalty is added before scores are scaled.
        attention.alibi = alibi.then_some(AlibiSpec { steepest: 8.0, scale: attention.score_scale });
        attention.rope = attention.rope.filter(|_| !alibi);
    });
    let side_by_side = settings.flag(NEW)?.unwrap_or(false) || settings.flag(SIDE_BY_SIDE)?.unwrap_or(true);
    for layer in spec.layers.iter_mut().filter(|_| side_by_side) {
        layer.order = BranchOrder::AtOnce;
        layer.mixer.norm_before =
            Some(if catalog.has("blk.0.attn_norm_2.weight") { "attn_norm_2" } else { "attn_norm" });
        layer.feed_forward.norm_before = Some("attn_norm");
    }
    Ok(spec)
}
