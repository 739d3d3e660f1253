//! Storage formats of numbers: their names and the geometry of their blocks.

use std::fmt;

/// How the numbers of a tensor are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(non_camel_case_types, reason = "the field writes these names with underscores")]
pub enum Dtype {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of an IEEE single.
    BF16,
    /// Blocks of 32: one f16 scale and 32 signed bytes.
    Q8_0,
    /// Blocks of 32: one f16 scale and 32 nibbles with offset 8.
    Q4_0,
    /// Blocks of 256: eight 6-bit scales and minima over 4-bit values.
    Q4_K,
    /// Blocks of 256: eight 6-bit scales and minima over 5-bit values.
    Q5_K,
    /// Blocks of 256: sixteen 8-bit scales over 6-bit values with offset 32.
    Q6_K,
}

impl Dtype {
    /// Every format, in the order of the enum.
    pub const ALL: [Dtype; 8] =
        [Dtype::F32, Dtype::F16, Dtype::BF16, Dtype::Q8_0, Dtype::Q4_0, Dtype::Q4_K, Dtype::Q5_K, Dtype::Q6_K];

    /// The name people know it by, in capitals as GGUF tools print it.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::F32 => "F32",
            Dtype::F16 => "F16",
            Dtype::BF16 => "BF16",
            Dtype::Q8_0 => "Q8_0",
            Dtype::Q4_0 => "Q4_0",
            Dtype::Q4_K => "Q4_K",
            Dtype::Q5_K => "Q5_K",
            Dtype::Q6_K => "Q6_K",
        }
    }

    /// Numbers in one block; 1 for plain floats.
    pub fn block_elements(self) -> usize {
        match self {
            Dtype::F32 | Dtype::F16 | Dtype::BF16 => 1,
            Dtype::Q8_0 | Dtype::Q4_0 => 32,
            Dtype::Q4_K | Dtype::Q5_K | Dtype::Q6_K => 256,
        }
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> usize {
        match self {
            Dtype::F32 => 4,
            Dtype::F16 | Dtype::BF16 => 2,
            Dtype::Q8_0 => 34,
            Dtype::Q4_0 => 18,
            Dtype::Q4_K => 144,
            Dtype::Q5_K => 176,
            Dtype::Q6_K => 210,
        }
    }

    /// Whether the numbers are plain floats rather than blocks of integers.
    pub fn is_float(self) -> bool {
        self.block_elements() == 1
    }

    /// Bytes of a row of `columns` numbers; `None` when they do not fill whole blocks or the size overflows.
    pub fn row_bytes(self, columns: u64) -> Option<u64> {
        let elements = self.block_elements() as u64;
        if !columns.is_multiple_of(elements) {
            return None;
        }
        (columns / elements).checked_mul(self.block_bytes() as u64)
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
