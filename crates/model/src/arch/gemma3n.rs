//! Gemma 3n: streams of hidden states, a low-rank branch beside attention, gates that are cut off in the first layers, and
//! what Gemma 4 has as well: inputs of single layers, and last layers that read the caches of earlier ones.

use cascadia_weights::FileKind;
use serde_json::Value;

use super::decoder::{bend_logits, each_attention, share_caches};
use super::gemma::{head_norms_and_ropes, norms_around, scaled_decoder, windows};
use super::gemma4::{SHARED_NAMES, per_layer};
use super::keys::*;
use super::{Family, GgufHabits, Source};
use crate::names::{Rename, common_but, same};
use crate::rope::RopeStyle;
use crate::settings::Key;
use crate::spec::{AltUpSpec, FeedForwardSpec, LaurelSpec};
use crate::{ModelError, ModelSpec};

const STREAMS: Key = Key { json: &["altup_num_inputs"], gguf: &["altup.num_inputs"] };
const ACTIVE_STREAM: Key = Key { json: &["altup_active_idx"], gguf: &["altup.active_idx"] };
const STREAM_SCALED: Key = Key { json: &["altup_correct_scale"], gguf: &["altup.correct_scale"] };
const GATE_CUTS: Key = Key { json: &["activation_sparsity_pattern"], gguf: &["activation_sparsity_scale"] };

/// More than any real model has; every row of a step has a small matrix of this many rows and columns.
const MOST_STREAMS: u32 = 64;
/// One layer in so many sees everything, unless the file lists them.
const PERIOD: usize = 5;
/// What logits are bent to stay within, unless the file says otherwise.
const SOFT_CAP: f32 = 30.0;
/// Where a configuration lists no shares of gates to cut off: in so many layers of longer models so large a share.
const CUT_LAYERS: usize = 10;
const CUT_SHARE: f64 = 0.95;

const NAMES: [Rename; 10] = [
    same("altup_proj", "model.altup_projections.{}"),
    same("altup_unembd_proj", "model.altup_unembed_projections.{}"),
    same("blk.{}.altup_router", "model.layers.{}.altup.modality_router"),
    same("blk.{}.altup_router_norm", "model.layers.{}.altup.router_norm"),
    same("blk.{}.altup_predict_coef", "model.layers.{}.altup.prediction_coefs"),
    same("blk.{}.altup_correct_coef", "model.layers.{}.altup.correction_coefs"),
    same("blk.{}.altup_correct_scale.weight", "model.layers.{}.altup.correct_output_scale"),
    same("blk.{}.laurel_l", "model.layers.{}.laurel.linear_left"),
    same("blk.{}.laurel_r", "model.layers.{}.laurel.linear_right"),
    same("blk.{}.laurel_post_norm", "model.layers.{}.laurel.post_laurel_norm"),
];

pub(super) const FAMILY: Family = Family {
    names: &["gemma3n_text", "gemma3n"],
    tensors: |_| Ok(common_but(&[SHARED_NAMES.as_slice(), &NAMES].concat())),
    spec,
    gguf: GgufHabits { architecture: "gemma3n", rope: RopeStyle::Halves },
};

fn spec(source: &Source<'_>) -> Result<ModelSpec, ModelError> {
    let mut spec = scaled_decoder(source)?;
    bend_logits(&mut spec, Some(source.settings.positive(LOGIT_SOFT_CAP)?.unwrap_or(SOFT_CAP)));
    norms_around(&mut spec);
    windows(source, &mut spec, PERIOD)?;
    head_norms_and_ropes(source, &mut spec)?;
    each_attention(&mut spec, |_, attention| {
        attention.score_scale = 1.0;
        attention.values_normed = true;
    });
    share_caches(source, &mut spec)?;
    spec.per_layer = per_layer(source, spec.width)?;
    spec.altup = Some(altup(source)?);
    let rank = source.catalog.require("blk.0.laurel_l.weight")?.shape().first().map_or(0, |&rank| rank as usize);
    let beside = LaurelSpec { rank, scale: std::f32::consts::FRAC_1_SQRT_2 };
    let cuts = gate_cuts(source, spec.layers.len())?;
    for (layer, cut) in spec.layers.iter_mut().zip(cuts) {
        layer.laurel = Some(beside);
        if let FeedForwardSpec::Dense(dense) = &mut layer.feed_forward.part {
            dense.gate_cut = cut;
        }
    }
    Ok(spec)
}

fn altup(source: &Source<'_>) -> Result<AltUpSpec, ModelError> {
    let settings = &source.settings;
    let count = settings.require_count(STREAMS, MOST_STREAMS)?;
    let active = settings.count_or_none(ACTIVE_STREAM, MOST_STREAMS)?.unwrap_or(0);
    if active >= count {
        return Err(settings.error(ACTIVE_STREAM, format!("is {active}, where there are {count}")));
    }
    // GGUF has no word for models that leave it out, and then not the tensor either.
    let stored = source.catalog.has("blk.0.altup_correct_scale.weight");
    Ok(AltUpSpec { count, active, scaled: stored && settings.flag(STREAM_SCALED)?.unwrap_or(true) })
}

/// From how many standard deviations on the gates of each layer count. Configurations say which share of them should not,
/// GGUF files how many deviations that is.
fn gate_cuts(source: &Source<'_>, layers: usize) -> Result<Vec<Option<f32>>, ModelError> {
    let settings = &source.settings;
    let cuts: Vec<Option<f32>> = match (settings.files.kind(), &settings.config()[GATE_CUTS.json[0]]) {
        (FileKind::Gguf, _) => {
            let listed = settings.files.metadata().value::<Vec<f32>>(&settings.name(GATE_CUTS))?;
            let Some(listed) = listed else { return Ok(vec![None; layers]) };
            // What cuts off nothing lies infinitely many deviations below the mean.
            let cut = |deviations: f32| (deviations != f32::NEG_INFINITY).then_some(deviations);
            listed.into_iter().map(cut).collect()
        }
        (FileKind::HuggingFace, Value::Null) => {
            let cut = |layer: usize| (layer < CUT_LAYERS && layers > CUT_LAYERS).then(|| deviations(CUT_SHARE));
            (0..layers).map(cut).collect()
        }
        (FileKind::HuggingFace, listed) => {
            let share = |value: &Value| value.as_f64().filter(|share| (0.0..1.0).contains(share));
            let shares = listed.as_array().and_then(|listed| listed.iter().map(share).collect::<Option<Vec<f64>>>());
            let shares = shares.ok_or_else(|| settings.error(GATE_CUTS, "is no list of shares from zero up to one"))?;
            shares.into_iter().map(|share| (share > 0.0).then(|| deviations(share))).collect()
        }
    };
    if cuts.len() != layers || cuts.iter().flatten().any(|cut| !cut.is_finite()) {
        let problem = format!("should list a number for each of {layers} layers, and lists {}", cuts.len());
        return Err(settings.error(GATE_CUTS, problem));
    }
    Ok(cuts)
}

/// How many standard deviations above the mean a normal distribution has this share below it.
fn deviations(share: f64) -> f32 {
    // No share that a double can tell from zero or one lies further out.
    let (mut low, mut high) = (-40.0, 40.0);
    while high - low > 1e-12 {
        let middle = (low + high) / 2.0;
        let below = libm::erfc(-middle * std::f64::consts::FRAC_1_SQRT_2) / 2.0;
        if below < share { low = middle } else { high = middle }
    }
    ((low + high) / 2.0) as f32
}

#[cfg(test)]
mod tests {
    use super::deviations;

    #[test]
    fn shares_of_a_normal_distribution() {
        for (share, expected) in [(0.5, 0.0), (0.95, 1.644_853_6), (0.05, -1.644_853_6), (0.975, 1.959_964)] {
            assert!((deviations(share) - expected).abs() < 1e-6, "{share}");
        }
        assert!(deviations(f64::MIN_POSITIVE).is_finite() && deviations(1.0 - f64::EPSILON).is_finite());
    }
}
