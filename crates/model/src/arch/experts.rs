//! Mixtures of experts as the two kinds of files describe them.

use cascadia_weights::FileKind;

use super::Source;
use super::keys::*;
use crate::names::{Form, Half, Rename, same};
use crate::settings::Key;
use crate::spec::{
    DenseSpec, ExpertGroups, ExpertsSpec, FeedForwardSpec, Gate, GroupRank, RouterScores, RouterSpec, SharedExpertSpec,
};
use crate::{ModelError, ModelSpec};

/// More experts than any real model comes near.
const MOST_EXPERTS: u32 = 1 << 16;

const COUNT: Key = Key { json: &["num_local_experts", "num_experts", "n_routed_experts"], gguf: &["expert_count"] };
const USED: Key =
    Key { json: &["num_experts_per_tok", "experts_per_token", "top_k_experts"], gguf: &["expert_used_count"] };
const INNER: Key = Key { json: &["moe_intermediate_size"], gguf: &["expert_feed_forward_length"] };
pub(super) const NORMALIZED: Key = Key { json: &["norm_topk_prob"], gguf: &["expert_weights_norm"] };
const SCALE: Key = Key { json: &["routed_scaling_factor"], gguf: &["expert_weights_scale"] };
const GROUPS: Key = Key { json: &["n_group"], gguf: &["expert_group_count"] };
const GROUPS_USED: Key = Key { json: &["topk_group"], gguf: &["expert_group_used_count"] };
const SCORES: Key = Key { json: &["scoring_func"], gguf: &["expert_gating_func"] };

/// Scores by their names in config.json and their numbers in GGUF.
const SCORE_NAMES: [(RouterScores, &str, u32); 3] = [
    (RouterScores::Softmax, "softmax", 1),
    (RouterScores::Sigmoid, "sigmoid", 2),
    (RouterScores::SoftmaxOfChosen, "softmax_weight", 3),
];

pub(super) const fn half(gguf: &'static str, stored: &'static str, half: Half) -> Rename {
    Rename { gguf, stored, form: Form::Rows(half) }
}

/// The names that most families with experts share, whether the file has a tensor for each expert or one for all.
pub(super) const EXPERTS: [Rename; 15] = [
    same("blk.{}.ffn_gate_inp", "model.layers.{}.mlp.gate"),
    same("blk.{}.exp_probs_b.bias", "model.layers.{}.mlp.gate.e_score_correction_bias"),
    same("blk.{}.ffn_gate_exps", "model.layers.{}.mlp.experts.{}.gate_proj"),
    same("blk.{}.ffn_up_exps", "model.layers.{}.mlp.experts.{}.up_proj"),
    same("blk.{}.ffn_down_exps", "model.layers.{}.mlp.experts.{}.down_proj"),
    half("blk.{}.ffn_gate_exps.weight", "model.layers.{}.mlp.experts.gate_up_proj", Half::First),
    half("blk.{}.ffn_up_exps.weight", "model.layers.{}.mlp.experts.gate_up_proj", Half::Second),
    same("blk.{}.ffn_down_exps.weight", "model.layers.{}.mlp.experts.down_proj"),
    same("blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_expert.gate_proj"),
    same("blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_expert.up_proj"),
    same("blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_expert.down_proj"),
    same("blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_experts.gate_proj"),
    same("blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_experts.up_proj"),
    same("blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_experts.down_proj"),
    Rename { gguf: "blk.{}.ffn_gate_inp_shexp", stored: "model.layers.{}.mlp.shared_expert_gate", form: Form::Row },
];

/// Gives experts to every layer of `spec` that has a router: what the settings say, as the family then changes it.
pub(super) fn with_experts(
    source: &Source<'_>,
    spec: &mut ModelSpec,
    change: impl FnOnce(&mut ExpertsSpec),
) -> Result<(), ModelError> {
    let routed: Vec<usize> =
        (0..spec.layers.len()).filter(|&layer| has(source, layer, "ffn_gate_inp.weight")).collect();
    let Some(&first) = routed.first() else {
        let missing = source.catalog.require("blk.0.ffn_gate_inp.weight").map(|_| ());
        return missing;
    };
    let FeedForwardSpec::Dense(dense) = spec.layers[first].feed_forward.part.clone() else { return Ok(()) };
    let mut experts = by_settings(source, first, dense)?;
    change(&mut experts);
    check(source, &experts)?;
    for layer in routed {
        spec.layers[layer].feed_forward.part = FeedForwardSpec::Experts(experts.clone());
    }
    Ok(())
}

fn has(source: &Source<'_>, layer: usize, name: &str) -> bool {
    source.catalog.has(&format!("blk.{layer}.{name}"))
}

/// The experts of layer `layer`, where a dense layer would have `dense`.
fn by_settings(source: &Source<'_>, layer: usize, dense: DenseSpec) -> Result<ExpertsSpec, ModelError> {
    let settings = &source.settings;
    let size = |name: &str, axis: usize| -> Result<usize, ModelError> {
        let entry = source.catalog.require(&format!("blk.{layer}.{name}.weight"))?;
        Ok(entry.shape().get(axis).map_or(0, |&size| size as usize))
    };
    let inner = match settings.count(INNER, 16 * MOST_WIDTH)? {
        Some(inner) => inner,
        None => size("ffn_up_exps", 1)?,
    };
    let dense = DenseSpec { gate: Gate::Own, ..dense };
    let shared = match has(source, layer, "ffn_up_shexp.weight") {
        false => None,
        true => Some(SharedExpertSpec {
            part: DenseSpec { inner: size("ffn_up_shexp", 0)?, bias: false, ..dense.clone() },
            gated: has(source, layer, "ffn_gate_inp_shexp.weight"),
        }),
    };
    let groups = settings.count(GROUPS, MOST_EXPERTS)?.filter(|&groups| groups > 1);
    let groups_used = settings.count(GROUPS_USED, MOST_EXPERTS)?;
    Ok(ExpertsSpec {
        count: settings.require_count(COUNT, MOST_EXPERTS)?,
        used: settings.require_count(USED, MOST_EXPERTS)?,
        each: DenseSpec { inner, bias: has(source, layer, "ffn_up_exps.bias"), ..dense },
        bounds: None,
        router: RouterSpec {
            scores: scores(source)?,
            bias: has(source, layer, "ffn_gate_inp.bias"),
            correction: has(source, layer, "exp_probs_b.bias"),
            groups: groups.map(|count| ExpertGroups {
                count,
                used: groups_used.unwrap_or(count),
                rank: GroupRank::BestTwo,
            }),
            normalized: settings.flag(NORMALIZED)?.unwrap_or(false),
            scale: settings.positive(SCALE)?.unwrap_or(1.0),
            expert_scaled: false,
        },
        shared,
    })
}

/// What the file says of scores; softmax where it says nothing.
fn scores(source: &Source<'_>) -> Result<RouterScores, ModelError> {
    let settings = &source.settings;
    let (known, found) = match settings.files.kind() {
        FileKind::Gguf => {
            let number = settings.files.metadata().value::<u64>(&settings.name(SCORES))?.unwrap_or(1);
            (SCORE_NAMES.iter().find(|row| u64::from(row.2) == number), number.to_string())
        }
        FileKind::HuggingFace => {
            let name = settings.config()["scoring_func"].as_str().unwrap_or("softmax");
            (SCORE_NAMES.iter().find(|row| row.1 == name), name.to_owned())
        }
    };
    known.map(|row| row.0).ok_or_else(|| {
        let names: Vec<String> = SCORE_NAMES.iter().map(|row| format!("{} ({})", row.2, row.1)).collect();
        settings.error(SCORES, format!("is {found}; this version runs {}", names.join(", ")))
    })
}

/// The number of scores in GGUF.
pub(crate) fn scores_number(scores: RouterScores) -> u32 {
    SCORE_NAMES.iter().find(|row| row.0 == scores).map_or(0, |row| row.2)
}

/// What routing relies on.
fn check(source: &Source<'_>, experts: &ExpertsSpec) -> Result<(), ModelError> {
    let ExpertsSpec { count, used, router, .. } = experts;
    let settings = &source.settings;
    if used > count {
        return Err(settings.error(USED, format!("is {used}, of {count} experts")));
    }
    let Some(groups) = &router.groups else { return Ok(()) };
    let members = count / groups.count;
    let least = if groups.rank == GroupRank::BestTwo { 2 } else { 1 };
    if !count.is_multiple_of(groups.count) || members < least {
        return Err(settings.error(GROUPS, format!("is {}, which cannot group {count} experts", groups.count)));
    }
    if groups.used > groups.count || groups.used * members < *used {
        let problem = format!("is {}, of {} groups of {members}, for {used} experts", groups.used, groups.count);
        return Err(settings.error(GROUPS_USED, problem));
    }
    Ok(())
}
