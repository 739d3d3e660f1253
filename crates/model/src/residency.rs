//! Which layers stay in memory under a cap, and which are read from the file again in every step.

use std::ops::Range;

use cascadia_weights::{ModelFiles, TensorBytes};

use crate::{LoadOptions, ModelError, ModelSpec};

/// Streamed layers in memory at once: the one that computes and the one that is being read.
pub(crate) const LAYERS_AT_ONCE: u64 = 2;
/// The program itself, its tokenizer, and what the system rounds up to.
const PROGRAM_BYTES: u64 = 96 << 20;

/// The weights of some layers as they lie in the files, and which of them are not kept.
pub(crate) struct Residency {
    /// The bytes of each layer, joined where tensors are neighbours.
    pub(crate) layers: Vec<Vec<TensorBytes>>,
    /// Indices into `layers`, rising, spread evenly: while kept layers compute, the next streamed one is read.
    pub(crate) streamed: Vec<usize>,
}

/// The most that weights, cache and all else may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryCap {
    pub(crate) memory: u64,
    pub(crate) cache_bytes: u64,
}

/// Bytes that a model takes.
struct MemoryNeeds {
    layers: Vec<u64>,
    /// Everything that is always there: both ends of the model, cache, buffers, program.
    fixed: u64,
}

impl Residency {
    /// Decides for the layers `range`; without a cap all of them stay.
    pub(crate) fn new(
        files: &ModelFiles,
        spec: &ModelSpec,
        range: Range<u32>,
        (options, cap): (&LoadOptions, Option<MemoryCap>),
    ) -> Result<Residency, ModelError> {
        let layers: Vec<_> = range.map(|layer| files.joined(|name| layer_of(name) == Some(layer))).collect();
        let streamed = match cap {
            Some(MemoryCap { memory, cache_bytes }) => {
                let mut needs = MemoryNeeds::beside_cache(files, spec, &layers, options);
                needs.fixed = needs.fixed.saturating_add(cache_bytes);
                let context = options.limits.context;
                needs.streamed(memory).ok_or(ModelError::MemoryTooSmall { memory, least: needs.least(), context })?
            }
            None => Vec::new(),
        };
        Ok(Residency { layers, streamed })
    }
}

/// What a whole model takes besides its cache when all of its layers stay in memory.
pub(crate) fn bytes_beside_cache(files: &ModelFiles, spec: &ModelSpec, options: &LoadOptions) -> u64 {
    let layers = [files.joined(|name| layer_of(name).is_some())];
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
            fixed: bytes(&files.joined(|name| layer_of(name).is_none()))
                .saturating_add(made)
                .saturating_add(buffer_bytes(files, spec, options))
                .saturating_add(PROGRAM_BYTES),
            layers: layers.iter().map(bytes).collect(),
        }
    }

    /// The layers that cannot stay within `memory` bytes; `None` when even streaming all of them does not help.
    fn streamed(&self, memory: u64) -> Option<Vec<usize>> {
        let all: u64 = self.layers.iter().sum();
        if self.fixed.saturating_add(all) <= memory {
            return Some(Vec::new());
        }
        let kept_limit = memory.checked_sub(self.least())?;
        let count = self.layers.len();
        let spread = |streamed: usize| (0..streamed).map(move |index| index * count / streamed);
        let kept = |streamed: usize| all - spread(streamed).map(|layer| self.layers[layer]).sum::<u64>();
        (1..=count).find(|&streamed| kept(streamed) <= kept_limit).map(|streamed| spread(streamed).collect())
    }

    /// The least memory that is enough.
    fn least(&self) -> u64 {
        let largest = self.layers.iter().max().copied().unwrap_or(0);
        self.fixed.saturating_add(largest.saturating_mul(LAYERS_AT_ONCE))
    }
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
            let needs = MemoryNeeds { layers: vec![10; 6], fixed: 100 };
            assert_eq!(needs.streamed(memory).as_deref(), expected, "{memory} bytes");
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
        let needs = MemoryNeeds { layers: vec![1, 30, 1, 1], fixed: 0 };
        assert_eq!(needs.streamed(33).unwrap_or_default(), [0usize; 0], "the window alone would be 60");
        assert_eq!(needs.least(), 60);
        assert_eq!(needs.streamed(61), Some(vec![]));
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
