//! An architecture as plain data: everything the forward pass needs to know besides the weights.

use cascadia_kernels::Dtype;
use cascadia_weights::ModelFiles;

use crate::{ModelError, RopeSpec, arch};

/// A model's architecture. Two models with equal specifications run the same code.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// Name of the architecture as the file gives it.
    pub architecture: String,
    /// Tokens in the vocabulary.
    pub vocabulary: usize,
    /// Numbers in a hidden state.
    pub width: usize,
    /// Tokens the model was trained to attend over.
    pub context: u32,
    /// The layers, first to last.
    pub layers: Vec<LayerSpec>,
    /// Position encodings, which layers refer to by index.
    pub ropes: Vec<RopeSpec>,
    /// Added to the mean square before its root, in every norm.
    pub epsilon: f32,
    /// Whether the output matrix is the embedding matrix.
    pub tied_output: bool,
    /// How keys and values are cached.
    pub cache: CachePrecision,
}

/// One layer of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSpec {
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Numbers in a head.
    pub head: usize,
    /// What attention scores are multiplied with.
    pub score_scale: f32,
    /// Newest positions a token sees, itself included; `None` sees all.
    pub window: Option<u32>,
    /// Index of the position encoding.
    pub rope: usize,
    /// Width inside the feed-forward part.
    pub feed_forward: usize,
    /// Whether query, key and value projections add a bias.
    pub qkv_bias: bool,
    /// Whether the attention output projection adds a bias.
    pub output_bias: bool,
    /// Whether the feed-forward projections add a bias.
    pub feed_forward_bias: bool,
}

/// Precision of cached keys and values. It follows the weights: float weights keep a float cache, so that their
/// results stay those of the authors' code; quantised weights have lost more than half precision takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachePrecision {
    /// Four bytes a number.
    F32,
    /// Two bytes a number.
    F16,
}

impl CachePrecision {
    /// The precision that suits weights of `dtype`.
    pub fn for_weights(dtype: Dtype) -> CachePrecision {
        if dtype.is_float() { CachePrecision::F32 } else { CachePrecision::F16 }
    }

    /// Bytes of one cached number.
    pub fn bytes(self) -> u64 {
        match self {
            CachePrecision::F32 => 4,
            CachePrecision::F16 => 2,
        }
    }
}

impl ModelSpec {
    /// Reads the specification from a file's metadata or a folder's config.json.
    pub fn from_files(files: &ModelFiles) -> Result<ModelSpec, ModelError> {
        arch::spec(files)
    }

    /// Bytes that the cached keys and values of `tokens` tokens take.
    pub fn kv_bytes(&self, tokens: u32) -> u64 {
        let numbers: u64 = self.layers.iter().map(|layer| 2 * (layer.kv_heads * layer.head) as u64).sum();
        numbers.saturating_mul(self.cache.bytes()).saturating_mul(u64::from(tokens))
    }
}
