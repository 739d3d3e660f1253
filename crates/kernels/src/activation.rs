//! The functions between the two halves of a feed-forward part.

/// What a feed-forward part does to a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// x × sigmoid(x).
    Silu,
    /// x × Φ(x), with the exact normal distribution.
    Gelu,
    /// x × Φ(x), with the usual approximation by tanh.
    GeluTanh,
    /// max(x, 0).
    Relu,
    /// max(x, 0)².
    ReluSquared,
    /// x × sigmoid(1.702 x), a coarse approximation of the normal distribution.
    GeluSigmoid,
    /// 1 / (1 + e⁻ˣ).
    Sigmoid,
}
