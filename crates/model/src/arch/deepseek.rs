//! DeepSeek-V2, V3 and R1, and Kimi-K2: latent attention, shared and routed experts.

use cascadia_weights::FileKind;

use super::decoder::decoder_with;
use super::experts::{EXPERTS, with_experts};
use super::keys::*;
use super::positions::{self, yarn_log_multiplier};
use super::{Family, GgufHabits, Source};
use crate::names::{Form, HeadRows, Rename, common_but, same};
use crate::rope::{RopeScaling, RopeSpec, RopeStyle, YarnScaling, yarn_magnitude};
use crate::settings::{Key, Settings, json_float};
use crate::spec::{GroupRank, LatentSpec, MixerSpec, RouterScores, RouterSpec};
use crate::{ModelError, ModelSpec};

const RANK: Key = Key { json: &["kv_lora_rank"], gguf: &["attention.kv_lora_rank"] };
const QUERY_RANK: Key = Key { json: &["q_lora_rank"], gguf: &["attention.q_lora_rank"] };
const ROTATED: Key = Key { json: &["qk_rope_head_dim"], gguf: &["rope.dimension_count"] };
const PLAIN: Key = Key { json: &["qk_nope_head_dim"], gguf: &[] };
/// The plain and the rotated part; files from before the absorbed form say it by the usual name.
const WHOLE: Key = Key { json: &[], gguf: &["attention.key_length_mla", "attention.key_length"] };
const VALUE: Key = Key { json: &["v_head_dim"], gguf: &["attention.value_length_mla", "attention.value_length"] };

const GGUF: GgufHabits = GgufHabits { architecture: "deepseek2", rope: RopeStyle::Interleaved };

const NAMES: [Rename; 5] = [
    same("blk.{}.attn_q_a", "model.layers.{}.self_attn.q_a_proj"),
    same("blk.{}.attn_q_a_norm", "model.layers.{}.self_attn.q_a_layernorm"),
    same("blk.{}.attn_q_b", "model.layers.{}.self_attn.q_b_proj"),
    same("blk.{}.attn_kv_a_mqa", "model.layers.{}.self_attn.kv_a_proj_with_mqa"),
    same("blk.{}.attn_kv_a_norm", "model.layers.{}.self_attn.kv_a_layernorm"),
];

/// V2; in GGUF all of them.
pub(super) const V2: Family = Family {
    names: &["deepseek_v2", "deepseek2"],
    tensors,
    spec: |source| {
        let greedy = source.settings.config()["topk_method"] == "greedy";
        latent_decoder(source, |router| {
            router.groups = router.groups.filter(|_| !greedy);
            if let (RouterScores::Softmax, Some(groups)) = (router.scores, &mut router.groups) {
                groups.rank = GroupRank::Best;
            }
        })
    },
    gguf: GGUF,
};

/// V3 and R1, and Kimi-K2.
pub(super) const V3: Family = Family {
    names: &["deepseek_v3", "kimi_k2"],
    tensors,
    spec: |source| latent_decoder(source, |router| router.scores = RouterScores::Sigmoid),
    gguf: GGUF,
};

fn tensors(settings: &Settings<'_>) -> Result<Vec<Rename>, ModelError> {
    let HeadSizes { plain, value, .. } = head_sizes(settings)?;
    let rows = HeadRows { key: plain, value };
    // GGUF files from before the absorbed form have both in one, as folders do.
    let ups = ["model.layers.{}.self_attn.kv_b_proj", "blk.{}.attn_kv_b"].map(|stored| {
        let up = |gguf, form| Rename { gguf, stored, form };
        [up("blk.{}.attn_k_b", Form::KeysOfHeads(rows)), up("blk.{}.attn_v_b", Form::ValuesOfHeads(rows))]
    });
    Ok(common_but(&[NAMES.as_slice(), &EXPERTS, &ups.concat()].concat()))
}

/// Numbers in the parts of a head.
struct HeadSizes {
    plain: usize,
    rotated: usize,
    value: usize,
}

fn head_sizes(settings: &Settings<'_>) -> Result<HeadSizes, ModelError> {
    let rotated = settings.require_count(ROTATED, MOST_WIDTH)?;
    let value = settings.require_count(VALUE, MOST_WIDTH)?;
    let plain = match settings.files.kind() {
        FileKind::HuggingFace => settings.require_count(PLAIN, MOST_WIDTH)?,
        FileKind::Gguf => {
            let whole = settings.require_count(WHOLE, MOST_WIDTH)?;
            let problem = || settings.error(WHOLE, format!("is {whole}, of which {rotated} are rotated"));
            whole.checked_sub(rotated).filter(|plain| *plain > 0).ok_or_else(problem)?
        }
    };
    Ok(HeadSizes { plain, rotated, value })
}

/// Latent attention in every layer, and experts where a layer has a router, which the family then changes.
fn latent_decoder(source: &Source<'_>, change: impl FnOnce(&mut RouterSpec)) -> Result<ModelSpec, ModelError> {
    let (settings, catalog) = (&source.settings, &source.catalog);
    let HeadSizes { plain, rotated, value } = head_sizes(settings)?;
    let mut rope = positions::rope(source, rotated)?;
    rope.style = match (settings.files.kind(), settings.config()["rope_interleave"].as_bool()) {
        (FileKind::HuggingFace, Some(false)) => RopeStyle::Halves,
        _ => RopeStyle::Interleaved,
    };
    let query_rank = match catalog.has("blk.0.attn_q_a.weight") {
        true => Some(settings.require_count(QUERY_RANK, MOST_WIDTH)?),
        false => None,
    };
    let magnitude = score_magnitude(source, &mut rope)?;
    let latent = LatentSpec {
        heads: settings.require_count(HEADS, MOST_WIDTH)?,
        plain,
        rotated,
        value,
        rank: settings.require_count(RANK, MOST_WIDTH)?,
        query_rank,
        score_scale: magnitude * magnitude / ((plain + rotated) as f32).sqrt(),
        rope: 0,
        bias: catalog.has("blk.0.attn_kv_a_mqa.bias"),
    };
    let mut spec = decoder_with(source, MixerSpec::Latent(latent), rope)?;
    let has_router = |layer: usize| catalog.has(&format!("blk.{layer}.ffn_gate_inp.weight"));
    if (0..spec.layers.len()).any(has_router) {
        with_experts(source, &mut spec, |experts| change(&mut experts.router))?;
    }
    Ok(spec)
}

/// What queries and keys are multiplied with as a whole where positions are stretched, instead of when they are rotated.
fn score_magnitude(source: &Source<'_>, rope: &mut RopeSpec) -> Result<f32, ModelError> {
    let settings = &source.settings;
    let RopeScaling::Yarn(YarnScaling { factor, magnitude, .. }) = &mut rope.scaling else { return Ok(1.0) };
    match settings.files.kind() {
        FileKind::HuggingFace => {
            let config = settings.config();
            let nested = if config["rope_parameters"].is_object() {
                &config["rope_parameters"]
            } else {
                &config["rope_scaling"]
            };
            let share =
                json_float(&nested["mscale_all_dim"]).map_err(|problem| settings.error(ROPE_SCALING, problem))?;
            Ok(yarn_magnitude(*factor, share.unwrap_or(0.0)))
        }
        FileKind::Gguf => {
            let share = yarn_log_multiplier(source)?;
            if share == 0.0 {
                return Ok(1.0);
            }
            // Here GGUF has a tenth of the share, and a factor that counts for both.
            *magnitude = settings.positive(ROPE_MAGNITUDE)?.unwrap_or(1.0);
            Ok(*magnitude * yarn_magnitude(*factor, 10.0 * share))
        }
    }
}
