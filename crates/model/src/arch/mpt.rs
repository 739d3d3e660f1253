//! MPT: ALiBi, no biases, queries, keys and values cut to a range.

use cascadia_weights::FileKind;

use super::decoder::{each_attention, plain_decoder};
use super::keys::*;
use super::{Family, GgufHabits, Source};
use crate::names::same;
use crate::rope::RopeStyle;
use crate::settings::json_float;
use crate::spec::AlibiSpec;
use crate::{ModelError, ModelSpec};

pub(super) const FAMILY: Family = Family {
    names: &["mpt"],
    tensors: |_| {
        Ok(vec![
            same("token_embd", "wte"),
            same("output_norm", "norm_f"),
            same("output", "lm_head"),
            same("blk.{}.attn_norm", "blocks.{}.norm_1"),
            same("blk.{}.ffn_norm", "blocks.{}.norm_2"),
            same("blk.{}.attn_qkv", "blocks.{}.attn.Wqkv"),
            same("blk.{}.attn_output", "blocks.{}.attn.out_proj"),
            same("blk.{}.ffn_up", "blocks.{}.ffn.up_proj"),
            same("blk.{}.ffn_down", "blocks.{}.ffn.down_proj"),
        ])
    },
    spec,
    gguf: GgufHabits { architecture: "mpt", rope: RopeStyle::Halves },
};

fn spec(source: &Source<'_>) -> Result<ModelSpec, ModelError> {
    let settings = &source.settings;
    let mut spec = plain_decoder(source)?;
    let nested = &settings.config()["attn_config"];
    let nested_number = |key| json_float(&nested[key]).map_err(|problem| settings.error(CLAMP, problem));
    let (clamp, steepest) = match settings.files.kind() {
        FileKind::HuggingFace => {
            let alibi = nested["alibi"].as_bool().unwrap_or(true);
            (nested_number("clip_qkv")?, alibi.then_some(nested_number("alibi_bias_max")?.unwrap_or(8.0)))
        }
        FileKind::Gguf => {
            let steepest = settings.files.metadata().value::<f32>(&settings.name(ALIBI))?;
            (settings.positive(CLAMP)?, steepest.filter(|steepest| *steepest > 0.0))
        }
    };
    if steepest.is_none() {
        return Err(settings.error(ALIBI, "is switched off; this version runs models of this family with it"));
    }
    let score_scale = nested_number("softmax_scale")?;
    each_attention(&mut spec, |_, attention| {
        attention.rope = None;
        attention.alibi = steepest.map(|steepest| AlibiSpec { steepest, scale: 1.0 });
        attention.clamp = clamp;
        attention.score_scale = score_scale.unwrap_or(attention.score_scale);
    });
    Ok(spec)
}
