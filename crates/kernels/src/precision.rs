//! How exactly activations meet quantised weights: as one term of bytes, or as two.
//!
//! The second term holds what the first has rounded away, in the same form. A product is then the sum of two products
//! of the same kernels, each as exact as before, so that every format, layout and instruction set has both precisions.

use std::fmt;

use crate::activations::{Int8Block32, Int8Block256};

/// Numbers that are rounded at a time: whole blocks of either form.
const NUMBERS: usize = 256;

/// How exactly activations meet quantised weights. Float weights meet them as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ActivationPrecision {
    /// As bytes with a scale per block.
    #[default]
    Int8,
    /// As bytes, and as bytes of what these lack: about sixteen bits.
    Int16,
}

impl ActivationPrecision {
    /// Both, the faster first.
    pub const ALL: [ActivationPrecision; 2] = [ActivationPrecision::Int8, ActivationPrecision::Int16];

    /// Rows of blocks for every row of numbers.
    pub fn terms(self) -> usize {
        match self {
            ActivationPrecision::Int8 => 1,
            ActivationPrecision::Int16 => 2,
        }
    }

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            ActivationPrecision::Int8 => "int8",
            ActivationPrecision::Int16 => "int16",
        }
    }
}

impl fmt::Display for ActivationPrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A block of bytes that share a scale.
pub(crate) trait Int8Block {
    /// The bytes.
    fn values(&self) -> &[i8];
    /// What a byte is worth.
    fn scale(&self) -> f32;
}

impl Int8Block for Int8Block32 {
    fn values(&self) -> &[i8] {
        &self.values
    }

    fn scale(&self) -> f32 {
        self.scale
    }
}

impl Int8Block for Int8Block256 {
    fn values(&self) -> &[i8] {
        &self.values
    }

    fn scale(&self) -> f32 {
        self.scale
    }
}

/// Rounds a row to the terms that `out` has room for, one after the other.
pub(crate) fn quantize_terms<T: Int8Block>(
    row: &[f32],
    block: usize,
    out: &mut [T],
    quantize: impl Fn(&[f32], &mut [T]),
) {
    let (first, second) = out.split_at_mut(row.len() / block);
    quantize(row, first);
    if second.is_empty() {
        return;
    }
    let blocks = NUMBERS / block;
    for ((row, first), second) in row.chunks(NUMBERS).zip(first.chunks(blocks)).zip(second.chunks_mut(blocks)) {
        let mut rest = [0.0; NUMBERS];
        for ((row, first), rest) in row.chunks(block).zip(first).zip(rest.chunks_mut(block)) {
            remainders(row, first, rest);
        }
        quantize(&rest[..row.len()], second);
    }
}

/// What a block lacks of the numbers that it stands for. The product is rounded before it is subtracted, everywhere.
fn remainders(row: &[f32], block: &impl Int8Block, out: &mut [f32]) {
    for ((out, number), byte) in out.iter_mut().zip(row).zip(block.values()) {
        *out = number - block.scale() * f32::from(*byte);
    }
}
