//! Weights in MXFP4 whose neighbours share a byte, and whose exponents lie in a tensor of their own.

use crate::made::Recipe;
use crate::tensor::TensorBytes;

/// Bytes of the nibbles of one block of 32.
pub(super) const BLOCK_NIBBLES: usize = 16;

/// Sixteen bytes of pairs per block in one tensor, one exponent per block in the other.
#[derive(Debug)]
pub(super) struct Pairs {
    pub(super) nibbles: TensorBytes,
    pub(super) exponents: TensorBytes,
}

impl Recipe for Pairs {
    /// Moves the nibbles to where our format has them: the first sixteen low, the others high.
    fn build(&self) -> Vec<u8> {
        let (blocks, _) = self.nibbles.as_ref().as_chunks::<BLOCK_NIBBLES>();
        let mut out = Vec::with_capacity(blocks.len() * (1 + BLOCK_NIBBLES));
        for (block, exponent) in blocks.iter().zip(self.exponents.as_ref()) {
            let number = |place: usize| block[place / 2] >> (4 * (place % 2)) & 15;
            out.push(*exponent);
            out.extend((0..BLOCK_NIBBLES).map(|place| number(place) | number(place + BLOCK_NIBBLES) << 4));
        }
        out
    }
}
