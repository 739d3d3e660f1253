//! What the loops over interleaved blocks of 256 must know of their formats.

use crate::blocks::{q4_k, q5_k, q6_k};

/// How a format turns four rows' integers into floats.
pub(crate) trait Format<const BYTES: usize> {
    /// Whether offsets have a scale of their own; otherwise they are subtracted from the products as integers.
    const OWN_MINIMUM: bool;
    /// Where the f16 scale lies.
    const SCALE: usize;
    /// The greatest unsigned quant, or more, where sums of products are not to be kept in 16 bits.
    const GREATEST: i32;
}

pub(crate) struct Q4K;
pub(crate) struct Q5K;
pub(crate) struct Q6K;

impl Format<{ q4_k::BYTES }> for Q4K {
    const OWN_MINIMUM: bool = true;
    const SCALE: usize = 0;
    const GREATEST: i32 = 15;
}

impl Format<{ q5_k::BYTES }> for Q5K {
    const OWN_MINIMUM: bool = true;
    const SCALE: usize = 0;
    const GREATEST: i32 = 31;
}

impl Format<{ q6_k::BYTES }> for Q6K {
    const OWN_MINIMUM: bool = false;
    const SCALE: usize = q6_k::SCALE;
    const GREATEST: i32 = 63;
}
