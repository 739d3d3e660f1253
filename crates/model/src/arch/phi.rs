//! Phi-3, Phi-3.5 and Phi-4: queries, keys and values in one matrix, gate and up in another.

use super::decoder::{each_attention, each_dense, gated_decoder, window};
use super::{Family, GgufHabits};
use crate::names::{common_but, same};
use crate::rope::RopeStyle;
use crate::spec::Gate;

pub(super) const FAMILY: Family = Family {
    names: &["phi3"],
    tensors: |_| {
        Ok(common_but(&[
            same("blk.{}.attn_qkv", "model.layers.{}.self_attn.qkv_proj"),
            same("blk.{}.ffn_up", "model.layers.{}.mlp.gate_up_proj"),
        ]))
    },
    spec: |source| {
        let mut spec = gated_decoder(source)?;
        let window = window(source)?;
        each_attention(&mut spec, |_, attention| attention.window = window);
        each_dense(&mut spec, |dense| dense.gate = Gate::WithUp);
        Ok(spec)
    },
    gguf: GgufHabits { architecture: "phi3", rope: RopeStyle::Halves },
};
