//! How exactly cached keys and values are kept.

use cascadia_kernels::Dtype;

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
