//! StarCoder2: rotary positions with layer norms and biases.

use cascadia_kernels::Activation;

use super::decoder::{each_attention, each_dense, plain_decoder, window};
use super::{Family, GgufHabits};
use crate::names::{common_but, same};
use crate::rope::RopeStyle;

pub(super) const FAMILY: Family = Family {
    names: &["starcoder2"],
    tensors: |_| {
        Ok(common_but(&[
            same("blk.{}.ffn_up", "model.layers.{}.mlp.c_fc"),
            same("blk.{}.ffn_down", "model.layers.{}.mlp.c_proj"),
        ]))
    },
    spec: |source| {
        let mut spec = plain_decoder(source)?;
        let window = window(source)?;
        each_attention(&mut spec, |_, attention| attention.window = window);
        each_dense(&mut spec, |dense| dense.activation = Activation::GeluTanh);
        Ok(spec)
    },
    gguf: GgufHabits { architecture: "starcoder2", rope: RopeStyle::Halves },
};
