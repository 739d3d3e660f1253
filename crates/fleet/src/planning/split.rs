//! Where a model may be cut into stages, and which tensors each part needs.

use std::ops::Range;

use cascadia_model::{CacheSource, ModelSpec};

use crate::FleetError;

/// Consecutive layers for each stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageSplit {
    stages: Vec<Range<u32>>,
    /// Layers are given more of each token than its hidden state, and make that from the token itself.
    needs_tokens: bool,
}

/// Where stages may begin: at no layer that separates another from the cache it reads.
pub fn possible_starts(spec: &ModelSpec) -> Vec<u32> {
    let parts = |start: usize| {
        let later = spec.layers.iter().enumerate().skip(start);
        later
            .filter_map(|(_, layer)| match layer.mixer.part.cache_source() {
                CacheSource::Layer(owner) => Some(owner),
                CacheSource::Own => None,
            })
            .any(|owner| owner < start)
    };
    (0..spec.layers.len()).filter(|&start| !parts(start)).map(|start| start as u32).collect()
}

impl StageSplit {
    /// Stages of about equally many layers, cut only where the model allows it.
    pub fn even(spec: &ModelSpec, count: u32) -> Result<StageSplit, FleetError> {
        let possible = possible_starts(spec);
        let layers = spec.layers.len() as u32;
        if count == 0 || count as usize > possible.len() {
            let problem = format!("the model's {layers} layers make at most {} stages", possible.len());
            return Err(refusal(format!("{count} stages"), problem, &possible));
        }
        let mut starts: Vec<u32> = Vec::new();
        for stage in 0..count {
            let ideal = u64::from(stage) * u64::from(layers) / u64::from(count);
            let after = starts.last().map_or(0, |last| last + 1);
            // As near as possible, with enough places left for the stages that follow.
            let left = (count - stage - 1) as usize;
            let free = possible[..possible.len() - left].iter().filter(|&&start| start >= after);
            starts.extend(free.min_by_key(|&&start| u64::from(start).abs_diff(ideal)));
        }
        StageSplit::at(spec, &starts)
    }

    /// Stages that begin at these layers; the first of them must be 0.
    pub fn at(spec: &ModelSpec, starts: &[u32]) -> Result<StageSplit, FleetError> {
        let possible = possible_starts(spec);
        let asked = || {
            let starts: Vec<String> = starts.iter().map(u32::to_string).collect();
            format!("stages from layers {}", starts.join(","))
        };
        let refuse = |problem: String| Err(refusal(asked(), problem, &possible));
        if starts.first() != Some(&0) || !starts.is_sorted_by(|one, other| one < other) {
            return refuse("the first must be 0 and each larger than the one before".to_owned());
        }
        if let Some(start) = starts.iter().find(|start| !possible.contains(start)) {
            return refuse(match (*start as usize) < spec.layers.len() {
                true => format!("a layer from {start} on reads the cache of a layer before it"),
                false => format!("the model has {} layers", spec.layers.len()),
            });
        }
        let ends = starts.iter().skip(1).copied().chain([spec.layers.len() as u32]);
        let stages = starts.iter().copied().zip(ends).map(|(start, end)| start..end).collect();
        Ok(StageSplit { stages, needs_tokens: spec.per_layer.is_some() })
    }

    /// The layers of each stage.
    pub fn stages(&self) -> &[Range<u32>] {
        &self.stages
    }

    /// Whether the shard of a stage holds the tensor with this GGUF name.
    pub fn holds(&self, stage: usize, name: &str) -> bool {
        match layer(name) {
            Some(layer) => self.stages[stage].contains(&layer),
            None => name.starts_with("rope_") || (self.needs_tokens && makes_inputs(name)),
        }
    }
}

/// Whether the shard of both ends holds the tensor with this GGUF name.
pub fn holds_ends(name: &str) -> bool {
    layer(name).is_none() && !name.starts_with("per_layer_")
}

/// Whether the shard of a stage has the metadata with this key: a stage knows no vocabulary.
pub fn tells_stage(key: &str) -> bool {
    !key.starts_with("tokenizer.")
}

/// What inputs of single layers are made from.
fn makes_inputs(name: &str) -> bool {
    ["per_layer_", "token_embd", "position_embd"].iter().any(|start| name.starts_with(start))
}

pub(crate) fn layer(name: &str) -> Option<u32> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

fn refusal(asked: String, problem: String, possible: &[u32]) -> FleetError {
    let possible: Vec<String> = possible.iter().map(u32::to_string).collect();
    FleetError::Split { asked, problem, possible: possible.join(", ") }
}

/// What people call a range of layers, numbered as in the names of tensors: the last one is in it.
pub fn layer_names(layers: &Range<u32>) -> String {
    format!("layers {}–{}", layers.start, layers.end.saturating_sub(1))
}
