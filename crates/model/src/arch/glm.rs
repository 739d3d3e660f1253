//! GLM-4.5 and 4.6: sigmoid routing with a correction, part of each head rotated.

use cascadia_weights::FileKind;

use super::decoder::{each_attention, gated_decoder};
use super::experts::{EXPERTS, with_experts};
use super::{Family, GgufHabits, Source};
use crate::names::{Rename, common_but, same};
use crate::rope::RopeStyle;
use crate::settings::Key;
use crate::spec::{HeadNorm, RouterScores};
use crate::{ModelError, ModelSpec};

/// Layers at the end that guess further tokens; only GGUF counts them among all.
const GUESSING: Key = Key { json: &["num_nextn_predict_layers"], gguf: &["nextn_predict_layers"] };

const NORMS: [Rename; 3] = [
    // GGUF calls the norm before the feed-forward part by its place after attention.
    same("blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"),
    same("blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm"),
    same("blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm"),
];

pub(super) const FAMILY: Family = Family {
    names: &["glm4_moe", "glm4moe"],
    tensors: |_| {
        let mut names = common_but(&[NORMS.as_slice(), &EXPERTS].concat());
        names.retain(|name| name.gguf != "blk.{}.ffn_norm");
        Ok(names)
    },
    spec,
    gguf: GgufHabits { architecture: "glm4moe", rope: RopeStyle::Halves },
};

fn spec(source: &Source<'_>) -> Result<ModelSpec, ModelError> {
    let mut spec = gated_decoder(source)?;
    if source.settings.files.kind() == FileKind::Gguf {
        let name = source.settings.name(GUESSING);
        let guessing = source.settings.files.metadata().value::<u64>(&name)?.unwrap_or(0);
        let kept = (spec.layers.len() as u64).saturating_sub(guessing).max(1);
        spec.layers.truncate(kept as usize);
    }
    let head_norm = source.catalog.has("blk.0.attn_q_norm.weight").then_some(HeadNorm::EachHead);
    each_attention(&mut spec, |_, attention| attention.head_norm = head_norm);
    spec.layers.iter_mut().for_each(|layer| layer.feed_forward.norm_before = Some("post_attention_norm"));
    with_experts(source, &mut spec, |experts| experts.router.scores = RouterScores::Sigmoid)?;
    Ok(spec)
}
