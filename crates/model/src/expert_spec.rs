//! A mixture of experts as plain data.

use crate::spec::{Branch, DenseSpec};

/// Many small feed-forward parts, of which each token uses a few; their results are added by the router's weights.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertsSpec {
    /// How many there are.
    pub count: usize,
    /// How many a token uses.
    pub used: usize,
    /// What each of them is. All have a gate of their own.
    pub each: DenseSpec,
    /// Bounds on what an expert's activation sees.
    pub bounds: Option<GateBounds>,
    /// How a token's experts are found.
    pub router: RouterSpec,
    /// What every token uses besides.
    pub shared: Option<SharedExpertSpec>,
}

/// Before the activation gates are cut to at most `limit`, and what they multiply to within `limit` of zero; to the
/// latter `offset` is then added.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GateBounds {
    /// The greatest gate.
    pub limit: f32,
    /// What is added to the numbers that gates multiply.
    pub offset: f32,
}

/// How a token's experts are found and weighed.
#[derive(Clone, Debug, PartialEq)]
pub struct RouterSpec {
    /// From the router's outputs to scores.
    pub scores: RouterScores,
    /// Whether the router's matrix adds a bias.
    pub bias: bool,
    /// Whether a number per expert is added to scores for the choice, and not in the weights.
    pub correction: bool,
    /// Experts come in groups, and only the best groups take part.
    pub groups: Option<ExpertGroups>,
    /// Whether the weights of a token's experts are divided by their sum.
    pub normalized: bool,
    /// What weights are multiplied with in the end.
    pub scale: f32,
    /// Whether the weight of each expert is then multiplied with a number of its own.
    pub expert_scaled: bool,
}

/// What becomes of a router's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterScores {
    /// Softmax over all experts.
    Softmax,
    /// Each by itself, between zero and one.
    Sigmoid,
    /// As they are for the choice; weights are the softmax over the chosen ones.
    SoftmaxOfChosen,
}

/// Experts in groups of equal size, of which a token uses a few.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertGroups {
    /// Number of groups.
    pub count: usize,
    /// Groups that a token uses.
    pub used: usize,
    /// By what groups are compared.
    pub rank: GroupRank,
}

/// By what groups of experts are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupRank {
    /// Their best expert's score.
    Best,
    /// The sum of their two best experts' scores.
    BestTwo,
}

/// A feed-forward part that every token uses beside its experts.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedExpertSpec {
    /// What it is. Several of them are one that is wider.
    pub part: DenseSpec,
    /// Whether its result is multiplied with a number between zero and one that is computed from the token.
    pub gated: bool,
}

/// A dense part and experts that both read the hidden states, and whose results are added.
#[derive(Clone, Debug, PartialEq)]
pub struct DenseAndExpertsSpec {
    /// What all tokens share.
    pub dense: Branch<DenseSpec>,
    /// What each token uses a few of.
    pub experts: Branch<ExpertsSpec>,
    /// What the weight of the router's own norm is multiplied with.
    pub router_scale: f32,
}
