//! GPT-2: learned positions, matrices stored with inputs as rows.

use cascadia_kernels::Activation;

use super::decoder::{each_attention, each_dense, plain_decoder};
use super::{Family, GgufHabits, Source};
use crate::names::{Form, Rename, same};
use crate::rope::RopeStyle;
use crate::spec::PositionsSpec;
use crate::{ModelError, ModelSpec};

const fn turned(gguf: &'static str, stored: &'static str) -> Rename {
    Rename { gguf, stored, form: Form::Transposed }
}

pub(super) const FAMILY: Family = Family {
    names: &["gpt2"],
    tensors: |_| {
        let names = [
            same("token_embd", "wte"),
            same("position_embd", "wpe"),
            same("output_norm", "ln_f"),
            same("blk.{}.attn_norm", "h.{}.ln_1"),
            same("blk.{}.ffn_norm", "h.{}.ln_2"),
            turned("blk.{}.attn_qkv", "h.{}.attn.c_attn"),
            turned("blk.{}.attn_output", "h.{}.attn.c_proj"),
            turned("blk.{}.ffn_up", "h.{}.mlp.c_fc"),
            turned("blk.{}.ffn_down", "h.{}.mlp.c_proj"),
            same("output", "lm_head"),
        ];
        Ok(names.to_vec())
    },
    spec,
    gguf: GgufHabits { architecture: "gpt2", rope: RopeStyle::Halves },
};

fn spec(source: &Source<'_>) -> Result<ModelSpec, ModelError> {
    let mut spec = plain_decoder(source)?;
    let positions = source.catalog.require("position_embd.weight")?.shape().first().copied().unwrap_or(0);
    spec.embedding.positions = Some(PositionsSpec { rows: positions as usize, first: 0 });
    // There is no embedding beyond, so no text may be longer.
    spec.context = spec.context.min(u32::try_from(positions).unwrap_or(u32::MAX));
    each_attention(&mut spec, |_, attention| attention.rope = None);
    each_dense(&mut spec, |dense| dense.activation = Activation::GeluTanh);
    Ok(spec)
}
