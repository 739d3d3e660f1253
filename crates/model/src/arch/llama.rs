//! Llama 1 to 3.x, and what is built like it: Mistral, Mixtral, DeepSeek LLM, Yi, SmolLM 1 and 2.

use super::decoder::{each_attention, gated_decoder, window};
use super::experts::{half, with_experts};
use super::{Family, GgufHabits, Source};
use crate::names::{Half, Rename, common_but, same};
use crate::rope::RopeStyle;
use crate::{ModelError, ModelSpec};

const EXPERTS: [Rename; 7] = [
    same("blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.gate"),
    same("blk.{}.ffn_gate_exps", "model.layers.{}.block_sparse_moe.experts.{}.w1"),
    same("blk.{}.ffn_up_exps", "model.layers.{}.block_sparse_moe.experts.{}.w3"),
    same("blk.{}.ffn_down_exps", "model.layers.{}.block_sparse_moe.experts.{}.w2"),
    // What programs have them as, and adapters change.
    half("blk.{}.ffn_gate_exps.weight", "model.layers.{}.mlp.experts.gate_up_proj", Half::First),
    half("blk.{}.ffn_up_exps.weight", "model.layers.{}.mlp.experts.gate_up_proj", Half::Second),
    same("blk.{}.ffn_down_exps.weight", "model.layers.{}.mlp.experts.down_proj"),
];

pub(super) const FAMILY: Family = Family {
    names: &["llama", "mistral", "mixtral"],
    tensors: |_| Ok(common_but(&EXPERTS)),
    spec,
    // GGUF reorders the rows of queries and keys for interleaved rotation.
    gguf: GgufHabits { architecture: "llama", rope: RopeStyle::Interleaved },
};

fn spec(source: &Source<'_>) -> Result<ModelSpec, ModelError> {
    let mut spec = gated_decoder(source)?;
    let window = window(source)?;
    each_attention(&mut spec, |_, attention| attention.window = window);
    if source.catalog.has("blk.0.ffn_gate_inp.weight") {
        with_experts(source, &mut spec, |experts| experts.router.normalized = true)?;
    }
    Ok(spec)
}
