//! gpt-oss: attention sinks, a window in every other layer, experts with biases and bounded gates.

use cascadia_kernels::Activation;
use cascadia_weights::FileKind;

use super::decoder::{each_attention, gated_decoder, window, windowed_layers};
use super::experts::with_experts;
use super::{Family, GgufHabits, Source};
use crate::names::{Form, Half, Rename, common_but, same};
use crate::rope::{RopeScaling, RopeStyle};
use crate::settings::Key;
use crate::spec::{GateBounds, RouterScores};
use crate::{ModelError, ModelSpec};

const LIMIT: Key = Key { json: &["swiglu_limit"], gguf: &["swiglu_clamp_exp"] };

const fn rows(gguf: &'static str, stored: &'static str, half: Half) -> Rename {
    Rename { gguf, stored, form: Form::Rows(half) }
}

const fn columns(gguf: &'static str, stored: &'static str, half: Half) -> Rename {
    Rename { gguf, stored, form: Form::Columns(half) }
}

const NAMES: [Rename; 9] = [
    same("blk.{}.attn_sinks.weight", "model.layers.{}.self_attn.sinks"),
    // GGUF calls the norm before experts by its place after attention.
    same("blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"),
    same("blk.{}.ffn_gate_inp", "model.layers.{}.mlp.router"),
    columns("blk.{}.ffn_gate_exps.weight", "model.layers.{}.mlp.experts.gate_up_proj", Half::Odd),
    columns("blk.{}.ffn_up_exps.weight", "model.layers.{}.mlp.experts.gate_up_proj", Half::Even),
    rows("blk.{}.ffn_gate_exps.bias", "model.layers.{}.mlp.experts.gate_up_proj_bias", Half::Odd),
    rows("blk.{}.ffn_up_exps.bias", "model.layers.{}.mlp.experts.gate_up_proj_bias", Half::Even),
    Rename {
        gguf: "blk.{}.ffn_down_exps.weight",
        stored: "model.layers.{}.mlp.experts.down_proj",
        form: Form::Transposed,
    },
    same("blk.{}.ffn_down_exps.bias", "model.layers.{}.mlp.experts.down_proj_bias"),
];

pub(super) const FAMILY: Family = Family {
    names: &["gpt_oss", "gpt-oss"],
    tensors: |_| {
        let mut names = common_but(&NAMES);
        names.retain(|name| name.gguf != "blk.{}.ffn_norm");
        Ok(names)
    },
    spec,
    gguf: GgufHabits { architecture: "gpt-oss", rope: RopeStyle::Halves },
};

fn spec(source: &Source<'_>) -> Result<ModelSpec, ModelError> {
    let mut spec = gated_decoder(source)?;
    let (window, listed) = (window(source)?, windowed_layers(source, spec.layers.len())?);
    each_attention(&mut spec, |layer, attention| {
        attention.sinks = true;
        // Unless the file lists them, every other layer has a window, the first included.
        let has_window = listed.as_ref().map_or(layer % 2 == 0, |listed| listed[layer]);
        attention.window = window.filter(|_| has_window);
    });
    spec.layers.iter_mut().for_each(|layer| layer.feed_forward.norm_before = Some("post_attention_norm"));
    for rope in &mut spec.ropes {
        // Only config.json can say so, and it always does.
        if let RopeScaling::Yarn(yarn) = &mut rope.scaling {
            yarn.whole_pairs &= source.settings.files.kind() == FileKind::HuggingFace;
        }
    }
    let limit = source.settings.positive(LIMIT)?.unwrap_or(7.0);
    with_experts(source, &mut spec, |experts| {
        experts.each.activation = Activation::GeluSigmoid;
        experts.bounds = Some(GateBounds { limit, offset: 1.0 });
        experts.router.scores = RouterScores::SoftmaxOfChosen;
    })?;
    Ok(spec)
}
