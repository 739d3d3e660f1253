//! OLMo-2 and OLMo-3 (norms only after each branch, and of all query and key heads together), and OLMoE.

use super::decoder::{each_attention, gated_decoder, window, windowed_layers};
use super::experts::{self, with_experts};
use super::keys::CLAMP;
use super::positions::plain_rope;
use super::{Family, GgufHabits, Source};
use crate::names::{Rename, common_but, same};
use crate::rope::{RopeSpec, RopeStyle};
use crate::spec::HeadNorm;
use crate::{ModelError, ModelSpec};

const NORMS: [Rename; 4] = [
    same("blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"),
    same("blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm"),
    same("blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm"),
    same("blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm"),
];

pub(super) const FAMILY: Family = Family {
    names: &["olmo2", "olmo3"],
    tensors: |_| {
        let mut names = common_but(&NORMS);
        names.retain(|name| name.gguf != "blk.{}.ffn_norm");
        Ok(names)
    },
    spec,
    gguf: GgufHabits { architecture: "olmo2", rope: RopeStyle::Halves },
};

pub(super) const EXPERTS: Family = Family {
    names: &["olmoe"],
    tensors: |_| Ok(common_but(&[&NORMS[2..], &experts::EXPERTS].concat())),
    spec: |source| {
        let mut spec = gated_decoder(source)?;
        if source.settings.has(CLAMP) {
            return Err(source.settings.error(CLAMP, "is set; this version runs models of this family without it"));
        }
        each_attention(&mut spec, |_, attention| attention.head_norm = Some(HeadNorm::AllHeads));
        with_experts(source, &mut spec, |_| {})?;
        Ok(spec)
    },
    gguf: GgufHabits { architecture: "olmoe", rope: RopeStyle::Halves },
};

fn spec(source: &Source<'_>) -> Result<ModelSpec, ModelError> {
    let mut spec = gated_decoder(source)?;
    let (window, listed) = (window(source)?, windowed_layers(source, spec.layers.len())?);
    // Only layers that see everything have their positions stretched.
    let RopeSpec { style, base, dimensions, .. } = spec.ropes[0];
    spec.ropes.push(plain_rope(style, base, dimensions));
    each_attention(&mut spec, |layer, attention| {
        attention.head_norm = Some(HeadNorm::AllHeads);
        attention.window = window.filter(|_| listed.as_ref().is_some_and(|listed| listed[layer]));
        attention.rope = Some(usize::from(attention.window.is_some()));
    });
    for layer in &mut spec.layers {
        (layer.mixer.norm_before, layer.mixer.norm_after) = (None, Some("post_attention_norm"));
        (layer.feed_forward.norm_before, layer.feed_forward.norm_after) = (None, Some("post_ffw_norm"));
    }
    Ok(spec)
}
