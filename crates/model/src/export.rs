//! A model's settings and tensors as GGUF writes them, whatever file they come from.

use std::sync::Arc;

use cascadia_kernels::{Dtype, SharedBytes};
use cascadia_weights::{FileKind, MetadataArray, MetadataValue, ModelFiles};

use crate::arch::GgufHabits;
use crate::catalog::Catalog;
use crate::rope::{RopeScaling, RopeSpec, RopeStyle, frequencies, yarn_magnitude};
use crate::spec::{
    BranchOrder, CacheShape, CacheSource, FeedForwardSpec, MixerSpec, NormKind, RouterSpec, SharedExpertSpec,
};
use crate::{ModelError, ModelSpec, arch};

/// What goes into a GGUF file of a model besides its tokenizer.
pub struct GgufExport<'a> {
    /// The architecture's own settings.
    pub settings: Vec<(String, MetadataValue)>,
    /// Its tensors.
    pub tensors: Vec<ExportedTensor>,
    catalog: Catalog<'a>,
}

/// One tensor of the export.
pub struct ExportedTensor {
    /// Its GGUF name.
    pub name: String,
    /// Outermost size first.
    pub shape: Vec<u64>,
    /// The format that the source has its numbers in.
    pub dtype: Dtype,
    source: ExportSource,
}

/// Where the numbers of an exported tensor come from.
enum ExportSource {
    /// A tensor of the model, as it is.
    Tensor,
    /// A tensor of the model with the rows of every head reordered: so many heads, first halves interleaved with second
    /// halves.
    InterleavedRows { heads: usize },
    /// Numbers that the source keeps in its settings.
    Values(Vec<f32>),
    /// A tensor of the model, whose first row is repeated after the last.
    FirstRowAgain { times: usize },
}

impl GgufExport<'_> {
    /// The numbers of one tensor, in the format that the source has them in.
    pub fn read(&self, tensor: &ExportedTensor) -> Result<(Dtype, SharedBytes), ModelError> {
        if let ExportSource::Values(values) = &tensor.source {
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            return Ok((Dtype::F32, Arc::new(bytes)));
        }
        let (dtype, bytes) = self.catalog.require(&tensor.name)?.read();
        let rows = tensor.shape.first().map_or(0, |&rows| rows as usize);
        let stored = (*bytes).as_ref();
        let bytes = match tensor.source {
            ExportSource::InterleavedRows { heads } => {
                let row = stored.len() / rows.max(1);
                let order = interleaved(rows, heads);
                order.flat_map(|at| stored[at * row..(at + 1) * row].iter().copied()).collect::<Vec<u8>>()
            }
            ExportSource::FirstRowAgain { times } => {
                let row = stored.len() / (rows - times).max(1);
                [stored, &stored[..row].repeat(times)].concat()
            }
            _ => return Ok((dtype, bytes)),
        };
        Ok((dtype, Arc::new(bytes)))
    }
}

impl ExportedTensor {
    /// The row of the model's own tensor that a row of the export is.
    pub fn source_row(&self, row: usize) -> usize {
        let rows = self.shape.first().map_or(0, |&rows| rows as usize);
        match self.source {
            ExportSource::InterleavedRows { heads } => interleaved_row(row, rows / heads),
            ExportSource::FirstRowAgain { times } if row >= rows - times => 0,
            _ => row,
        }
    }
}

/// For every row of a result whose heads have the two of a pair side by side, the stored row it is.
pub(crate) fn interleaved(rows: usize, heads: usize) -> impl Iterator<Item = usize> {
    let head = rows / heads;
    (0..rows).map(move |row| interleaved_row(row, head))
}

/// The same for one row, where heads have so many.
fn interleaved_row(row: usize, head: usize) -> usize {
    row / head * head + row % head % 2 * (head / 2) + row % head / 2
}

/// Plans the export of a model read from a Hugging Face folder.
pub fn gguf_export<'a>(files: &'a ModelFiles, spec: &ModelSpec) -> Result<GgufExport<'a>, ModelError> {
    assert_eq!(files.kind(), FileKind::HuggingFace, "a GGUF file is copied, not exported");
    let habits = arch::gguf_habits(files)?;
    let catalog = arch::catalog(files)?;
    if let (MixerSpec::Latent(_), RopeStyle::Halves) = (&spec.layers[0].mixer.part, spec.ropes[0].style) {
        return Err(ModelError::Setting {
            path: files.path().to_owned(),
            key: "rope_interleave".into(),
            problem: "is false, for which GGUF has no form; the folder itself can be run".into(),
        });
    }
    let Some(head) = &spec.head else {
        return Err(ModelError::Setting {
            path: files.path().to_owned(),
            key: "model_type".into(),
            problem: format!(
                "is `{}`, an encoder, which is not written as GGUF; the folder itself can be run",
                spec.architecture
            ),
        });
    };
    let mut tensors = Vec::new();
    for (name, entry) in catalog.entries() {
        if head.tied && name == "output.weight" {
            continue;
        }
        entry.check_alike(files)?;
        let mut shape = entry.shape();
        let layer = name.split('.').nth(1).and_then(|number| number.parse::<usize>().ok());
        if layer.is_some_and(|layer| layer >= spec.layers.len()) {
            // Some folders have layers after the last that guess further tokens.
            continue;
        }
        let mixer = layer.and_then(|layer| spec.layers.get(layer)).map(|layer| &layer.mixer.part);
        let part = name.rsplit('.').nth(1);
        if part == Some("altup_correct_scale") && !spec.altup.is_some_and(|altup| altup.scaled) {
            // Where it is there, it is used.
            continue;
        }
        let heads = match (part, mixer) {
            (Some("attn_q"), Some(MixerSpec::Attention(attention))) => Some(attention.heads),
            (Some("attn_k"), Some(MixerSpec::Attention(attention))) => Some(attention.kv_heads),
            _ => None,
        };
        let source = match heads {
            Some(heads) if habits.rope == RopeStyle::Interleaved => {
                if !shape.first().is_some_and(|&rows| rows > 0 && rows.is_multiple_of(2 * heads as u64)) {
                    return Err(entry.shape_error(files, &[2 * heads]));
                }
                ExportSource::InterleavedRows { heads }
            }
            _ => ExportSource::Tensor,
        };
        let source = match (name, spec.per_layer) {
            // llama.cpp asks for a row for every token; this is the one that the others have.
            ("per_layer_token_embd.weight", Some(inputs)) if shape.len() == 2 && inputs.tokens < spec.vocabulary => {
                shape[0] = spec.vocabulary as u64;
                ExportSource::FirstRowAgain { times: spec.vocabulary - inputs.tokens }
            }
            _ => source,
        };
        tensors.push(ExportedTensor { name: name.to_owned(), shape, dtype: entry.dtype(), source });
    }
    tensors.extend(rope_tensors(&spec.ropes[0]));
    Ok(GgufExport { settings: settings(spec, habits), tensors, catalog })
}

fn settings(spec: &ModelSpec, habits: GgufHabits) -> Vec<(String, MetadataValue)> {
    let all = sizes(spec).into_iter().chain(mixer_sizes(spec)).chain(kinds(spec)).chain(extras(spec));
    let all = all.chain(rope_settings(spec)).chain(expert_settings(spec));
    let architecture = habits.architecture;
    let general = ("general.architecture".to_owned(), MetadataValue::String(architecture.as_bytes().into()));
    std::iter::once(general).chain(all.map(|(key, value)| (format!("{architecture}.{key}"), value))).collect()
}

/// What every model has.
fn sizes(spec: &ModelSpec) -> Vec<(&'static str, MetadataValue)> {
    // Where some layers have experts, theirs has a setting of its own.
    let dense = spec.layers.iter().filter_map(|layer| match &layer.feed_forward.part {
        FeedForwardSpec::Dense(dense) => Some(dense.inner),
        FeedForwardSpec::DenseAndExperts(dense_and_experts) => Some(dense_and_experts.dense.part.inner),
        FeedForwardSpec::Experts(_) => None,
    });
    let experts = spec.layers[0].feed_forward.part.experts().map(|experts| experts.each.inner);
    let feed_forward = if dense.clone().next().is_some() { dense.collect() } else { Vec::from_iter(experts) };
    let epsilon = match spec.norm.kind {
        NormKind::RootMeanSquare => "attention.layer_norm_rms_epsilon",
        NormKind::Layer { .. } => "attention.layer_norm_epsilon",
    };
    vec![
        ("block_count", count(spec.layers.len())),
        ("context_length", MetadataValue::U32(spec.context)),
        ("embedding_length", count(spec.width)),
        ("feed_forward_length", each(&feed_forward)),
        (epsilon, MetadataValue::F32(spec.norm.epsilon)),
        ("rope.dimension_count", count(spec.ropes[0].dimensions)),
        ("rope.freq_base", MetadataValue::F32(spec.ropes[0].base)),
        ("vocab_size", count(spec.vocabulary)),
    ]
}

fn count(value: usize) -> MetadataValue {
    MetadataValue::U32(value as u32)
}

/// One number where all layers have the same, otherwise a list.
fn each(values: &[usize]) -> MetadataValue {
    match values {
        [first, rest @ ..] if rest.iter().all(|value| value == first) => count(*first),
        values => MetadataArray::U32(values.iter().map(|&value| value as u32).collect()).into(),
    }
}

/// What models with experts have.
fn expert_settings(spec: &ModelSpec) -> Vec<(&'static str, MetadataValue)> {
    let dense = spec.layers.iter().take_while(|layer| layer.feed_forward.part.experts().is_none()).count();
    let Some(experts) = spec.layers.get(dense).and_then(|layer| layer.feed_forward.part.experts()) else {
        return Vec::new();
    };
    let RouterSpec { scores, groups, normalized, scale, .. } = &experts.router;
    let mut settings = vec![
        ("expert_count", count(experts.count)),
        ("expert_used_count", count(experts.used)),
        ("expert_feed_forward_length", count(experts.each.inner)),
        ("expert_weights_norm", MetadataValue::Bool(*normalized)),
        ("expert_weights_scale", MetadataValue::F32(*scale)),
        ("expert_gating_func", MetadataValue::U32(arch::scores_number(*scores))),
        ("leading_dense_block_count", count(dense)),
    ];
    if let Some(SharedExpertSpec { part, .. }) = &experts.shared {
        settings.push(("expert_shared_feed_forward_length", count(part.inner)));
        settings.push(("expert_shared_count", count(part.inner.div_ceil(experts.each.inner))));
    }
    if let Some(groups) = groups {
        settings.push(("expert_group_count", count(groups.count)));
        settings.push(("expert_group_used_count", count(groups.used)));
    }
    settings.extend(experts.bounds.map(|bounds| ("swiglu_clamp_exp", MetadataValue::F32(bounds.limit))));
    settings
}

/// Sizes of heads.
fn mixer_sizes(spec: &ModelSpec) -> Vec<(&'static str, MetadataValue)> {
    let caches: Vec<CacheShape> = spec.layers.iter().map(|layer| layer.mixer.part.cache()).collect();
    let mixer = &spec.layers[0].mixer.part;
    let CacheShape { key, value, .. } = two_kinds(spec).map_or(caches[0], |(full, _)| full);
    let (heads, more) = match mixer {
        MixerSpec::Attention(attention) => (attention.heads, Vec::new()),
        MixerSpec::Latent(latent) => {
            let query_rank = latent.query_rank.map(|rank| ("attention.q_lora_rank", rank));
            let sizes = [
                ("attention.kv_lora_rank", latent.rank),
                ("attention.key_length_mla", latent.plain + latent.rotated),
                ("attention.value_length_mla", latent.value),
            ];
            (latent.heads, sizes.into_iter().chain(query_rank).collect())
        }
    };
    let sizes = [("attention.head_count", heads), ("attention.key_length", key), ("attention.value_length", value)];
    let cached = each(&caches.iter().map(|cache| cache.heads).collect::<Vec<_>>());
    let sizes = sizes.into_iter().chain(more).map(|(key, value)| (key, count(value)));
    sizes.chain([("attention.head_count_kv", cached)]).collect()
}

/// The caches of layers without and with a window, where they have other heads.
fn two_kinds(spec: &ModelSpec) -> Option<(CacheShape, CacheShape)> {
    let mut caches = spec.layers.iter().map(|layer| layer.mixer.part.cache());
    let full = caches.clone().find(|cache| cache.window.is_none())?;
    let local = caches.find(|cache| cache.window.is_some())?;
    (full.key != local.key || full.heads != local.heads).then_some((full, local))
}

/// What models have whose layers differ in more than their window. Where heads do, llama.cpp asks for all of it.
fn kinds(spec: &ModelSpec) -> Vec<(&'static str, MetadataValue)> {
    let kinds = two_kinds(spec);
    let sharing = spec.layers.iter().filter(|layer| layer.mixer.part.cache_source() != CacheSource::Own).count();
    let inputs = spec.per_layer.map_or(0, |inputs| inputs.width);
    let all = [
        kinds.map(|(_, local)| ("attention.key_length_swa", local.key)),
        kinds.map(|(_, local)| ("attention.value_length_swa", local.value)),
        kinds.and(spec.ropes.get(1)).map(|rope| ("rope.dimension_count_swa", rope.dimensions)),
        (kinds.is_some() || sharing > 0).then_some(("attention.shared_kv_layers", sharing)),
        (kinds.is_some() || inputs > 0).then_some(("embedding_length_per_layer_input", inputs)),
        spec.altup.map(|altup| ("altup.num_inputs", altup.count)),
        spec.altup.map(|altup| ("altup.active_idx", altup.active)),
    ];
    all.into_iter().flatten().map(|(key, value)| (key, count(value))).chain(gate_cuts(spec)).collect()
}

/// From how many standard deviations on the gates of each layer count: infinitely many below the mean where all do.
fn gate_cuts(spec: &ModelSpec) -> Option<(&'static str, MetadataValue)> {
    let dense = spec.layers.iter().map(|layer| layer.feed_forward.part.shared());
    let cuts: Vec<Option<f32>> = dense.map(|dense| dense.and_then(|dense| dense.gate_cut)).collect();
    let listed = cuts.iter().map(|cut| cut.unwrap_or(f32::NEG_INFINITY)).collect();
    cuts.iter().any(Option::is_some).then(|| ("activation_sparsity_scale", MetadataArray::F32(listed).into()))
}

/// What only some models have.
fn extras(spec: &ModelSpec) -> Vec<(&'static str, MetadataValue)> {
    let attention = match &spec.layers[0].mixer.part {
        MixerSpec::Attention(attention) => Some(attention),
        MixerSpec::Latent(_) => None,
    };
    let alibi = attention.and_then(|attention| attention.alibi);
    let number = |key, value: Option<f32>| value.map(|value| (key, MetadataValue::F32(value)));
    let unless = |usual: f32, value: f32| (value != usual).then_some(value);
    let windows: Vec<bool> = spec.layers.iter().map(|layer| layer.mixer.part.cache().window.is_some()).collect();
    let window = spec.layers.iter().find_map(|layer| layer.mixer.part.cache().window);
    let window = window.map(|window| ("attention.sliding_window", MetadataValue::U32(window)));
    let mixed = windows.contains(&true) && windows.contains(&false);
    let pattern = mixed.then(|| ("attention.sliding_window_pattern", window_pattern(spec, &windows)));
    let beside = spec.layers[0].order == BranchOrder::AtOnce;
    let numbers = [
        number("attention.scale", attention.and_then(|part| unless(1.0 / (part.head as f32).sqrt(), part.score_scale))),
        number("attn_logit_softcapping", attention.and_then(|attention| attention.soft_cap)),
        number("final_logit_softcapping", spec.head.as_ref().and_then(|head| head.soft_cap)),
        number("attention.clamp_kqv", attention.and_then(|attention| attention.clamp)),
        number("attention.max_alibi_bias", alibi.map(|alibi| alibi.steepest)),
        number("embedding_scale", unless(1.0, spec.embedding.scale)),
        number("residual_scale", unless(1.0, spec.layers[0].residual_scale)),
        number("logit_scale", spec.head.as_ref().and_then(|head| unless(1.0, 1.0 / head.scale))),
        number("rope.freq_base_swa", spec.ropes.get(1).map(|rope| rope.base)),
    ];
    let flags = [
        ("use_parallel_residual", MetadataValue::Bool(beside)),
        ("attention.alibi", MetadataValue::Bool(alibi.is_some_and(|alibi| alibi.scale != 1.0))),
    ];
    let flags = flags.into_iter().filter(|_| matches!(spec.norm.kind, NormKind::Layer { .. }));
    numbers.into_iter().flatten().chain(window).chain(pattern).chain(flags).collect()
}

/// Which layers have a window: the period if all but the last of each have one, otherwise layer by layer. Where heads
/// differ as well, llama.cpp asks for the list.
fn window_pattern(spec: &ModelSpec, windows: &[bool]) -> MetadataValue {
    let period = windows.iter().take_while(|windowed| **windowed).count() + 1;
    let periodic = windows.iter().enumerate().all(|(layer, &windowed)| windowed == (layer % period < period - 1));
    if periodic && two_kinds(spec).is_none() {
        MetadataValue::U32(period as u32)
    } else {
        MetadataArray::Bool(windows.into()).into()
    }
}

/// Scaling of frequencies that GGUF keeps in settings. It is written in the form that llama.cpp reads, except for a
/// base that grows with the context, which llama.cpp does not know and reads as no scaling.
fn rope_settings(spec: &ModelSpec) -> Vec<(&'static str, MetadataValue)> {
    let text = |value: &str| ("rope.scaling.type", MetadataValue::String(value.as_bytes().into()));
    let factor = |factor: f32| ("rope.scaling.factor", MetadataValue::F32(factor));
    let original = |context: u32| ("rope.scaling.original_context_length", MetadataValue::U32(context));
    let magnitude = |magnitude: f32| ("rope.scaling.attn_factor", MetadataValue::F32(magnitude));
    match &spec.ropes[0].scaling {
        RopeScaling::None | RopeScaling::Divisors(_) | RopeScaling::Wavelengths(_) => Vec::new(),
        RopeScaling::Linear(number) => vec![text("linear"), factor(*number)],
        RopeScaling::Dynamic(dynamic) => vec![
            text("none"),
            ("rope.scaling.dynamic_factor", MetadataValue::F32(dynamic.factor)),
            original(dynamic.original_context),
        ],
        RopeScaling::Yarn(yarn) => {
            let mut settings = vec![
                text("yarn"),
                factor(yarn.factor),
                original(yarn.original_context),
                ("rope.scaling.yarn_beta_fast", MetadataValue::F32(yarn.fast)),
                ("rope.scaling.yarn_beta_slow", MetadataValue::F32(yarn.slow)),
                ("rope.scaling.yarn_truncate", MetadataValue::Bool(yarn.whole_pairs)),
            ];
            match &spec.layers[0].mixer.part {
                // Relative to the usual magnitude, which every reader works out from the factor.
                MixerSpec::Attention(_) => {
                    settings.push(magnitude(yarn.magnitude / yarn_magnitude(yarn.factor, 1.0)));
                }
                // Here the magnitude counts for scores as well; what they have besides is told by its logarithm's share.
                MixerSpec::Latent(latent) => {
                    let whole = latent.score_scale * ((latent.plain + latent.rotated) as f32).sqrt();
                    let share = (whole.sqrt() / yarn.magnitude - 1.0) / libm::logf(yarn.factor);
                    settings.push(magnitude(yarn.magnitude));
                    settings.push(("rope.scaling.yarn_log_multiplier", MetadataValue::F32(share)));
                }
            }
            settings
        }
        RopeScaling::Long(long) => vec![text("longrope"), original(long.original_context), magnitude(long.magnitude)],
    }
}

/// Scaling of frequencies that GGUF keeps in tensors.
fn rope_tensors(rope: &RopeSpec) -> Vec<ExportedTensor> {
    let tensor = |name: &str, divisors: Vec<f32>| ExportedTensor {
        dtype: Dtype::F32,
        name: name.into(),
        shape: vec![divisors.len() as u64],
        source: ExportSource::Values(divisors),
    };
    match &rope.scaling {
        RopeScaling::Divisors(divisors) => vec![tensor("rope_freqs.weight", divisors.clone())],
        RopeScaling::Wavelengths(scaling) => {
            let plain = frequencies(f64::from(rope.base), rope.dimensions);
            let divisors = plain.iter().map(|frequency| scaling.divisor(*frequency)).collect();
            vec![tensor("rope_freqs.weight", divisors)]
        }
        RopeScaling::Long(long) => vec![
            tensor("rope_factors_long.weight", long.long.clone()),
            tensor("rope_factors_short.weight", long.short.clone()),
        ],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::interleaved;

    #[test]
    fn pairs_come_together_within_their_head() {
        assert_eq!(interleaved(12, 2).collect::<Vec<_>>(), [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
    }
}
