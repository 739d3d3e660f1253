//! An architecture as plain data: everything the forward pass needs to know besides the weights.

use cascadia_kernels::{Activation, Dtype, Side};
use cascadia_weights::ModelFiles;

pub use crate::expert_spec::{
    DenseAndExpertsSpec, ExpertGroups, ExpertsSpec, GateBounds, GroupRank, RouterScores, RouterSpec, SharedExpertSpec,
};
use crate::{ModelError, RopeSpec, arch};

/// A model's architecture. Two models with equal specifications run the same code.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// Name of the architecture as the file gives it.
    pub architecture: String,
    /// Tokens in the vocabulary.
    pub vocabulary: usize,
    /// Numbers in a hidden state, or in each of its streams.
    pub width: usize,
    /// Streams that hidden states have, where they have several.
    pub altup: Option<AltUpSpec>,
    /// Tokens the model was trained to attend over.
    pub context: u32,
    /// How tokens become hidden states.
    pub embedding: EmbeddingSpec,
    /// What layers are given of each token besides its hidden state.
    pub per_layer: Option<PerLayerSpec>,
    /// The layers, first to last.
    pub layers: Vec<LayerSpec>,
    /// Position encodings, which layers refer to by index.
    pub ropes: Vec<RopeSpec>,
    /// The kind of every norm.
    pub norm: NormSpec,
    /// Whether a norm follows the last layer.
    pub final_norm: bool,
    /// How hidden states become logits; `None` where the model makes no text.
    pub head: Option<HeadSpec>,
    /// How the hidden states of a text become one row.
    pub pooling: PoolingSpec,
    /// The storage format of most weights.
    pub weights: Dtype,
}

/// How tokens become hidden states.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddingSpec {
    /// What embeddings are multiplied with.
    pub scale: f32,
    /// Positions that have a learned embedding, added to that of the token.
    pub positions: Option<PositionsSpec>,
    /// How many texts of one sequence are told apart: each has a learned embedding, added to that of its tokens.
    pub texts: Option<usize>,
    /// Whether a norm follows.
    pub normed: bool,
}

/// Learned embeddings of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PositionsSpec {
    /// How many there are.
    pub rows: usize,
    /// Which of them is that of the first token.
    pub first: usize,
}

/// Hidden states of several streams. A layer computes one of them: before it, all streams are predicted from all; after
/// it, all are corrected by what the prediction of that one lacked. Both weigh streams by what a router says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AltUpSpec {
    /// Streams; the first begins as the embedding, the others as projections of it.
    pub count: usize,
    /// The stream that layers compute.
    pub active: usize,
    /// Whether what inputs of single layers see of it is multiplied with a row of the layer's own.
    pub scaled: bool,
}

/// Inputs of single layers: of every token each layer has a short row, the sum of one from a table and of a normalised
/// projection of the token's embedding. At its end a layer gates the row and adds what a matrix makes of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerLayerSpec {
    /// Numbers in such a row.
    pub width: usize,
    /// Tokens that the table has; those beyond it have the row of the first.
    pub tokens: usize,
    /// What rows of the table are multiplied with.
    pub table_scale: f32,
    /// What projections are multiplied with before their norm.
    pub projection_scale: f32,
    /// What the sum is multiplied with.
    pub scale: f32,
    /// The function of the gate.
    pub activation: Activation,
}

/// How hidden states become logits.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadSpec {
    /// Whether the output matrix is the embedding matrix.
    pub tied: bool,
    /// Whether the output matrix adds a bias.
    pub bias: bool,
    /// What logits are multiplied with.
    pub scale: f32,
    /// Logits are bent to stay within this much of zero.
    pub soft_cap: Option<f32>,
}

/// How the hidden states of a text become one row: its embedding, or what is said of it.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolingSpec {
    /// What the row is made from.
    pub rows: PooledRows,
    /// Whether embeddings are made as long as one.
    pub normalised: bool,
    /// Tokens beyond which the authors cut texts.
    pub most_tokens: Option<u32>,
    /// What is made of the row instead of an embedding.
    pub classifier: Option<ClassifierSpec>,
}

/// Which hidden states become the row of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PooledRows {
    /// The mean of all.
    Mean,
    /// That of the first token.
    First,
    /// That of the last token.
    Last,
}

/// A few numbers that are said of a text or of two, such as how well one answers the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassifierSpec {
    /// How many numbers.
    pub outputs: usize,
    /// Whether each has a bias.
    pub bias: bool,
    /// What is computed before them.
    pub dense: Option<ClassifierDense>,
}

/// A matrix as large as the model is wide, before those of a classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassifierDense {
    /// What follows it.
    pub activation: ClassifierActivation,
    /// Whether it adds a bias.
    pub bias: bool,
    /// Whether a norm follows.
    pub normed: bool,
}

/// The function between the two matrices of a classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassifierActivation {
    /// The hyperbolic tangent.
    Tanh,
    /// x × Φ(x), with the exact normal distribution.
    Gelu,
}

/// What a norm does besides scaling by its weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormSpec {
    /// By what rows are divided.
    pub kind: NormKind,
    /// Added to the mean square before its root.
    pub epsilon: f32,
}

/// By what a norm divides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// The root of the mean square.
    RootMeanSquare,
    /// The standard deviation, after subtracting the mean.
    Layer {
        /// Whether a bias is added in the end.
        bias: bool,
    },
}

/// One layer of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSpec {
    /// What lets a token read the tokens before it.
    pub mixer: Branch<MixerSpec>,
    /// What is computed beside the mixer.
    pub laurel: Option<LaurelSpec>,
    /// What works on each token by itself.
    pub feed_forward: Branch<FeedForwardSpec>,
    /// Whether the second branch sees what the first has added.
    pub order: BranchOrder,
    /// What a branch's result is multiplied with before it is added.
    pub residual_scale: f32,
    /// Whether hidden states are in the end multiplied with a number of the layer's own.
    pub output_scaled: bool,
}

/// Something that is computed from the hidden states and added to them.
#[derive(Clone, Debug, PartialEq)]
pub struct Branch<T> {
    /// GGUF name of the norm before it.
    pub norm_before: Option<&'static str>,
    /// What is computed.
    pub part: T,
    /// GGUF name of the norm after it.
    pub norm_after: Option<&'static str>,
    /// GGUF name of the norm of the sum that it is added to.
    pub norm_of_sum: Option<&'static str>,
}

/// A branch through a few numbers that reads what the mixer reads: what it makes of that, normalised, and that itself
/// are added to the hidden states after the mixer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaurelSpec {
    /// Numbers between its two matrices.
    pub rank: usize,
    /// What the sum is multiplied with.
    pub scale: f32,
}

/// How the two branches of a layer meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BranchOrder {
    /// The second branch reads what the first has changed.
    InTurn,
    /// Both read the same hidden states.
    AtOnce,
}

/// What lets a token read the tokens before it.
#[derive(Clone, Debug, PartialEq)]
pub enum MixerSpec {
    /// Keys and values of some heads are cached.
    Attention(AttentionSpec),
    /// One small row is cached, from which all heads have their keys and values.
    Latent(LatentSpec),
}

/// What is kept of every token for a mixer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheShape {
    /// Heads that are cached.
    pub(crate) heads: usize,
    /// Numbers in a key.
    pub(crate) key: usize,
    /// Numbers in a value.
    pub(crate) value: usize,
    /// Whether a value is the first numbers of its key.
    pub(crate) value_in_key: bool,
    /// Newest positions that are read; `None` for all.
    pub(crate) window: Option<u32>,
}

impl CacheShape {
    /// Numbers in a key or a value.
    pub(crate) fn width(&self, side: Side) -> usize {
        match side {
            Side::Keys => self.key,
            Side::Values => self.value,
        }
    }
}

/// Attention with query heads that share key/value heads.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionSpec {
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
    /// Whether a token also sees the tokens after it: all, or as many as its window has before it.
    pub sees_later: bool,
    /// Index of the rotary position encoding.
    pub rope: Option<usize>,
    /// Position encoding by distance.
    pub alibi: Option<AlibiSpec>,
    /// Scores are bent to stay within this much of zero.
    pub soft_cap: Option<f32>,
    /// Whether every head has a score that takes part in the softmax and has no value.
    pub sinks: bool,
    /// Norms of queries and keys.
    pub head_norm: Option<HeadNorm>,
    /// Queries, keys and values are cut to stay within this much of zero.
    pub clamp: Option<f32>,
    /// Whether query, key and value projections add a bias.
    pub qkv_bias: bool,
    /// Whether the output projection adds a bias.
    pub output_bias: bool,
    /// What values are made from.
    pub values: ValueSource,
    /// Whether the values of each head are divided by the root of their mean square.
    pub values_normed: bool,
    /// Whose keys and values are read.
    pub cache: CacheSource,
}

/// What values are made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueSource {
    /// A projection of their own.
    Projection,
    /// The projection that also makes keys, before anything else is done to those.
    Keys,
}

/// Whose keys and values a layer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheSource {
    /// Its own.
    Own,
    /// Those of an earlier layer; it makes none itself.
    Layer(usize),
}

/// Attention whose keys and values are linear maps of one latent row per token, besides one rotated key for all heads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatentSpec {
    /// Heads.
    pub heads: usize,
    /// Numbers of a query or key that have no position; they come first.
    pub plain: usize,
    /// Numbers of a query or key that are rotated.
    pub rotated: usize,
    /// Numbers in a value.
    pub value: usize,
    /// Numbers in the latent row.
    pub rank: usize,
    /// Numbers between the two projections of queries; `None` for a single one.
    pub query_rank: Option<usize>,
    /// What attention scores are multiplied with.
    pub score_scale: f32,
    /// Index of the rotary position encoding.
    pub rope: usize,
    /// Whether the first projections and the last add a bias.
    pub bias: bool,
}

/// A penalty on scores that grows with distance, steeper for each further head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AlibiSpec {
    /// Two to the power of minus this is the slope of the last head.
    pub steepest: f32,
    /// What slopes are multiplied with.
    pub scale: f32,
}

/// Over which numbers queries and keys are normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadNorm {
    /// Each head by itself, all with the same weight.
    EachHead,
    /// All heads together.
    AllHeads,
}

/// What works on each token by itself.
#[derive(Clone, Debug, PartialEq)]
pub enum FeedForwardSpec {
    /// Two matrices with an activation between them.
    Dense(DenseSpec),
    /// Many small parts, of which a router picks a few for each token.
    Experts(ExpertsSpec),
    /// Both, side by side.
    DenseAndExperts(Box<DenseAndExpertsSpec>),
}

/// A feed-forward part that all tokens share.
#[derive(Clone, Debug, PartialEq)]
pub struct DenseSpec {
    /// Width inside.
    pub inner: usize,
    /// The function between its matrices.
    pub activation: Activation,
    /// Where the matrix is whose activation multiplies the first one's results.
    pub gate: Gate,
    /// Gates count by what they exceed their mean plus so many standard deviations by, and not at all below that.
    pub gate_cut: Option<f32>,
    /// Whether its projections add a bias.
    pub bias: bool,
}

/// Where a feed-forward part has its gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// It has none; the activation is applied to the first matrix's results.
    None,
    /// In a matrix of its own.
    Own,
    /// In the first rows of the first matrix.
    WithUp,
}

impl MixerSpec {
    /// Whose keys and values it reads.
    pub fn cache_source(&self) -> CacheSource {
        match self {
            MixerSpec::Attention(attention) => attention.cache,
            MixerSpec::Latent(_) => CacheSource::Own,
        }
    }

    /// What is kept of every token that it reads.
    pub(crate) fn cache(&self) -> CacheShape {
        match self {
            MixerSpec::Attention(AttentionSpec { kv_heads, head, window, sees_later, .. }) => {
                // A text whose tokens see later ones is computed at once, and all of it is kept for that step.
                let window = window.filter(|_| !sees_later);
                CacheShape { heads: *kv_heads, key: *head, value: *head, value_in_key: false, window }
            }
            // The latent row is the value, and with the rotated key behind it the key.
            MixerSpec::Latent(LatentSpec { rank, rotated, .. }) => {
                CacheShape { heads: 1, key: rank + rotated, value: *rank, value_in_key: true, window: None }
            }
        }
    }
}

impl FeedForwardSpec {
    /// What all tokens use.
    pub fn shared(&self) -> Option<&DenseSpec> {
        match self {
            FeedForwardSpec::Dense(dense) => Some(dense),
            FeedForwardSpec::Experts(experts) => experts.shared.as_ref().map(|shared| &shared.part),
            FeedForwardSpec::DenseAndExperts(dense_and_experts) => Some(&dense_and_experts.dense.part),
        }
    }

    /// What each token uses a few of.
    pub fn experts(&self) -> Option<&ExpertsSpec> {
        match self {
            FeedForwardSpec::Dense(_) => None,
            FeedForwardSpec::Experts(experts) => Some(experts),
            FeedForwardSpec::DenseAndExperts(dense_and_experts) => Some(&dense_and_experts.experts.part),
        }
    }
}

impl ModelSpec {
    /// Reads the specification from a file's metadata or a folder's config.json.
    pub fn from_files(files: &ModelFiles) -> Result<ModelSpec, ModelError> {
        arch::spec(files)
    }

    /// Numbers in a row of hidden states: all streams, one after the other.
    pub fn hidden_width(&self) -> usize {
        self.width * self.altup.map_or(1, |altup| altup.count)
    }

    /// Whether tokens see later ones, so that a text must be computed in one step.
    pub fn sees_later(&self) -> bool {
        let sees_later = |layer: &LayerSpec| match &layer.mixer.part {
            MixerSpec::Attention(attention) => attention.sees_later,
            MixerSpec::Latent(_) => false,
        };
        self.layers.iter().any(sees_later)
    }

    /// The longest window of its layers.
    pub fn window(&self) -> Option<u32> {
        self.layers.iter().filter_map(|layer| layer.mixer.part.cache().window).max()
    }
}
