//! Which layers and experts stay in memory under a cap, and which are read from the file again in every step.

use std::ops::Range;

use cascadia_weights::{ModelFiles, TensorBytes};

use crate::streamed_experts::ExpertPlaces;
use crate::{LoadOptions, ModelError, ModelSpec};

/// Streamed layers in memory at once: the one that computes and the one that is being read.
pub(crate) const LAYERS_AT_ONCE: u64 = 2;
/// The program itself, its tokenizer, and what the system rounds up to.
const PROGRAM_BYTES: u64 = 96 << 20;

/// The weights of some layers as they lie in the files, and which of them are not kept.
pub(crate) struct Residency {
    /// The bytes of each layer without experts that are not kept, joined where tensors are neighbours.
    pub(crate) layers: Vec<Vec<TensorBytes>>,
    pub(crate) streamed: Streamed,
}

/// What is not kept: indices of layers, rising, spread evenly.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Streamed {
    /// Layers that are read whole but for their experts. While kept ones compute, the next of these is read.
    pub(crate) layers: Vec<usize>,
    /// Layers of whose experts a step reads those that its rows use.
    pub(crate) experts: Vec<usize>,
}

/// The most that weights, cache and all else may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryCap {
    pub(crate) memory: u64,
    pub(crate) cache_bytes: u64,
}

/// Bytes that a model takes.
struct MemoryNeeds {
    /// Each layer without its experts.
    layers: Vec<u64>,
    /// The experts of each layer that has some in the files.
    experts: Vec<u64>,
    /// Everything that is always there: both ends of the model, cache, buffers, program.
    fixed: u64,
}

impl Residency {
    /// Decides for the layers `range`, whose experts lie at `places`; without a cap all of them stay.
    pub(crate) fn new(
        files: &ModelFiles,
        spec: &ModelSpec,
        (range, places): (Range<u32>, &[Option<ExpertPlaces>]),
        (options, cap): (&LoadOptions, Option<MemoryCap>),
    ) -> Result<Residency, ModelError> {
        let whole = |layer: u32| files.joined(|tensor| layer_of(tensor.name()) == Some(layer));
        let layers: Vec<_> = range.clone().map(whole).collect();
        let Some(MemoryCap { memory, cache_bytes }) = cap else {
            return Ok(Residency { layers, streamed: Streamed::default() });
        };
        let without_experts = |(layer, places): (u32, &Option<ExpertPlaces>)| {
            let of_expert = |part: &TensorBytes| places.as_ref().is_some_and(|places| places.overlap(part));
            files.joined(|tensor| {
                layer_of(tensor.name()) == Some(layer) && !tensor.stored_bytes().is_some_and(of_expert)
            })
        };
        let dense: Vec<_> = range.zip(places).map(without_experts).collect();
        let mut needs = MemoryNeeds::beside_cache(files, spec, &dense, options);
        needs.fixed = needs.fixed.saturating_add(cache_bytes);
        needs.experts = places.iter().map(|places| places.as_ref().map_or(0, ExpertPlaces::bytes)).collect();
        let (least, context) = (needs.least(), options.limits.context);
        let streamed = needs.streamed(memory).ok_or(ModelError::MemoryTooSmall { memory, least, context })?;
        let kept = |(index, (whole, dense))| if streamed.experts.contains(&index) { dense } else { whole };
        let layers = layers.into_iter().zip(dense).enumerate().map(kept).collect();
        Ok(Residency { layers, streamed })
    }
}

/// What a whole model takes besides its cache when all of its layers stay in memory.
pub(crate) fn bytes_beside_cache(files: &ModelFiles, spec: &ModelSpec, options: &LoadOptions) -> u64 {
    let layers = [files.joined(|tensor| layer_of(tensor.name()).is_some())];
    let needs = MemoryNeeds::beside_cache(files, spec, &layers, options);
    needs.layers.iter().fold(needs.fixed, |sum, layer| sum.saturating_add(*layer))
}

impl MemoryNeeds {
    fn beside_cache(
        files: &ModelFiles,
        spec: &ModelSpec,
        layers: &[Vec<TensorBytes>],
        options: &LoadOptions,
    ) -> MemoryNeeds {
        let bytes = |parts: &Vec<TensorBytes>| parts.iter().map(|part| part.as_ref().len() as u64).sum::<u64>();
        let all: u64 = files.tensors().iter().map(|tensor| tensor.byte_len()).sum();
        // What is put together from several tensors lives in memory of its own and cannot be read again.
        let made = all.saturating_sub(bytes(&files.joined(|_| true)));
        MemoryNeeds {
            fixed: bytes(&files.joined(|tensor| layer_of(tensor.name()).is_none()))
                .saturating_add(made)
                .saturating_add(buffer_bytes(files, spec, options))
                .saturating_add(PROGRAM_BYTES)
                .saturating_add(options.reserved),
            layers: layers.iter().map(bytes).collect(),
            experts: Vec::new(),
        }
    }

    /// What cannot stay within `memory` bytes; `None` when even streaming everything does not help. Experts leave first,
    /// because a step that uses few of them reads few.
    fn streamed(&self, memory: u64) -> Option<Streamed> {
        let (layers, experts): (u64, u64) = (self.layers.iter().sum(), self.experts.iter().sum());
        if self.fixed.saturating_add(layers).saturating_add(experts) <= memory {
            return Some(Streamed::default());
        }
        let for_experts = memory.checked_sub(self.fixed.saturating_add(layers).saturating_add(self.experts_at_once()));
        if let Some(streamed) = for_experts.and_then(|limit| spread(&self.experts, limit)) {
            return Some(Streamed { layers: Vec::new(), experts: streamed });
        }
        let layers = spread(&self.layers, memory.checked_sub(self.least())?)?;
        Some(Streamed { layers, experts: with_bytes(&self.experts) })
    }

    /// The least memory that is enough.
    fn least(&self) -> u64 {
        let largest = self.layers.iter().max().copied().unwrap_or(0);
        self.fixed.saturating_add(self.experts_at_once()).saturating_add(largest.saturating_mul(LAYERS_AT_ONCE))
    }

    /// A step with many rows uses all experts of a layer, and those of one layer at a time.
    fn experts_at_once(&self) -> u64 {
        self.experts.iter().max().copied().unwrap_or(0)
    }
}

/// The fewest of these parts, spread evenly, without which the others take no more than `limit`; at least one.
fn spread(bytes: &[u64], limit: u64) -> Option<Vec<usize>> {
    let parts = with_bytes(bytes);
    let all: u64 = bytes.iter().sum();
    let some = |count: usize| (0..count).map(|index| parts[index * parts.len() / count]).collect::<Vec<_>>();
    let kept = |without: &Vec<usize>| all - without.iter().map(|&part| bytes[part]).sum::<u64>();
    (1..=parts.len()).map(some).find(|without| kept(without) <= limit)
}

/// The indices of those that are not empty.
fn with_bytes(bytes: &[u64]) -> Vec<usize> {
    (0..bytes.len()).filter(|&part| bytes[part] > 0).collect()
}

/// The number in a tensor's name, which is its layer in GGUF and in Hugging Face files alike. A last
/// one counts matrices.
fn layer_of(name: &str) -> Option<u32> {
    let part = name.strip_suffix(".weight").unwrap_or(name);
    let (before, _) = part.rsplit_once('.')?;
    before.split('.').find_map(|part| part.parse().ok())
}

/// What a step writes besides the cache, about: per row the results of a layer's matrices and a few hidden states,
/// per thread the scores of a group of heads, and the logits.
fn buffer_bytes(files: &ModelFiles, spec: &ModelSpec, options: &LoadOptions) -> u64 {
    const HEADS_OF_A_GROUP: usize = 16;
    let matrices =
        files.tensors().iter().filter(|tensor| layer_of(tensor.name()) == Some(0) && tensor.shape().len() > 1);
    let outputs: u64 = matrices.map(|tensor| tensor.shape()[tensor.shape().len() - 2]).sum();
    let rows =
        u64::from(options.limits.rows_per_step).saturating_mul(outputs.saturating_add(8 * spec.hidden_width() as u64));
    let scores = (options.pool.threads() * HEADS_OF_A_GROUP) as u64 * u64::from(options.limits.context);
    rows.saturating_add(scores).saturating_add(spec.vocabulary as u64).saturating_mul(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_layers_stay_as_fit() {
        let check = |memory: u64, expected: Option<&[usize]>| {
            let needs = MemoryNeeds { layers: vec![10; 6], experts: vec![0; 6], fixed: 100 };
            let expected = expected.map(|layers| Streamed { layers: layers.to_vec(), experts: Vec::new() });
            assert_eq!(needs.streamed(memory), expected, "{memory} bytes");
        };
        check(u64::MAX, Some(&[]));
        check(160, Some(&[]));
        // Two layers' room is for streaming, so one byte short of everything costs three layers.
        check(159, Some(&[0, 2, 4]));
        check(150, Some(&[0, 2, 4]));
        check(149, Some(&[0, 1, 3, 4]));
        check(120, Some(&[0, 1, 2, 3, 4, 5]));
        check(119, None);
        check(0, None);
    }

    #[test]
    fn uneven_layers_are_counted_by_their_bytes() {
        let needs = MemoryNeeds { layers: vec![1, 30, 1, 1], experts: vec![], fixed: 0 };
        assert_eq!(needs.streamed(33), Some(Streamed::default()), "the window alone would be 60");
        assert_eq!(needs.least(), 60);
        assert_eq!(needs.streamed(61), Some(Streamed::default()));
    }

    #[test]
    fn experts_leave_before_layers() {
        let needs = MemoryNeeds { layers: vec![10; 4], experts: vec![0, 50, 50, 50], fixed: 100 };
        let check = |memory: u64, layers: &[usize], experts: &[usize]| {
            let expected = Streamed { layers: layers.to_vec(), experts: experts.to_vec() };
            assert_eq!(needs.streamed(memory), Some(expected), "{memory} bytes");
        };
        check(290, &[], &[]);
        // Room for the experts of one layer is for streaming.
        check(289, &[], &[1, 2]);
        check(240, &[], &[1, 2]);
        check(239, &[], &[1, 2, 3]);
        check(190, &[], &[1, 2, 3]);
        check(189, &[0, 1, 2], &[1, 2, 3]);
        check(170, &[0, 1, 2, 3], &[1, 2, 3]);
        assert_eq!((needs.streamed(169), needs.least()), (None, 170));
    }

    #[test]
    fn the_layer_is_in_the_name() {
        for (name, layer) in [
            ("blk.12.attn_q.weight", Some(12)),
            ("model.layers.3.mlp.experts.7.up_proj.weight", Some(3)),
            ("blk.4.ffn_gate.7.weight", Some(4)),
            ("model.layers.3.layer_scalar", Some(3)),
            ("model.altup_projections.2.weight", None),
            ("token_embd.weight", None),
            ("model.embed_tokens.weight", None),
        ] {
            assert_eq!(layer_of(name), layer, "{name}");
        }
    }
}
