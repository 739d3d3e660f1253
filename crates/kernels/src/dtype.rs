//! Storage formats of numbers: their names and the geometry of their blocks.

use std::fmt;

use crate::blocks::{
    int4_group128, int4_zero32, iq1_m, iq1_s, iq2_s, iq2_xs, iq2_xxs, iq3_s, iq3_xxs, iq4_nl, iq4_xs, mxfp4, nf4, q2_k,
    q3_k, q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0, tq1_0, tq2_0,
};

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
    /// One byte a number: four bits of exponent, three of mantissa, no infinities.
    F8_E4M3,
    /// Blocks of 32: f16 scale and minimum over nibbles.
    Q4_1,
    /// Blocks of 32: one f16 scale over 5-bit values with offset 16.
    Q5_0,
    /// Blocks of 32: f16 scale and minimum over 5-bit values.
    Q5_1,
    /// Blocks of 256: sixteen 4-bit scales and minima over 2-bit values.
    Q2_K,
    /// Blocks of 256: sixteen 6-bit scales over 3-bit values with offset 4.
    Q3_K,
    /// Blocks of 256: eights of lattice points near -1, 0, 1; a 3-bit scale and a shift per 32.
    IQ1_S,
    /// Blocks of 256: the lattice of IQ1_S; a 3-bit scale per 16 and a shift per 8.
    IQ1_M,
    /// Blocks of 256: eights of 256 lattice points with signs; a 4-bit scale per 32.
    IQ2_XXS,
    /// Blocks of 256: eights of 512 lattice points with signs; a 4-bit scale per 16.
    IQ2_XS,
    /// Blocks of 256: eights of 1024 lattice points with signs; a 4-bit scale per 16.
    IQ2_S,
    /// Blocks of 256: fours of 256 lattice points with signs; a 4-bit scale per 32.
    IQ3_XXS,
    /// Blocks of 256: fours of 512 lattice points with signs; a 4-bit scale per 32.
    IQ3_S,
    /// Blocks of 32: one f16 scale over nibbles that choose from sixteen uneven levels.
    IQ4_NL,
    /// Blocks of 256: eight 6-bit scales over the levels of IQ4_NL.
    IQ4_XS,
    /// Blocks of 256: one f16 scale over -1, 0, 1, five to a byte.
    TQ1_0,
    /// Blocks of 256: one f16 scale over -1, 0, 1, four to a byte.
    TQ2_0,
    /// Blocks of 32: a power of two over 4-bit floats (OCP microscaling).
    MXFP4,
    /// Our own. Blocks of 64: one f16 scale over nibbles that choose from the sixteen levels of NormalFloat.
    Nf4,
    /// Our own. Blocks of 128: one f16 scale over nibbles with offset 8.
    Int4Group128,
    /// Our own. Blocks of 32: f16 scale and integer zero point over nibbles.
    Int4Zero32,
}

impl Dtype {
    /// Every format, in the order of the enum.
    pub const ALL: [Dtype; 29] = [
        Dtype::F32,
        Dtype::F16,
        Dtype::BF16,
        Dtype::Q8_0,
        Dtype::Q4_0,
        Dtype::Q4_K,
        Dtype::Q5_K,
        Dtype::Q6_K,
        Dtype::F8_E4M3,
        Dtype::Q4_1,
        Dtype::Q5_0,
        Dtype::Q5_1,
        Dtype::Q2_K,
        Dtype::Q3_K,
        Dtype::IQ1_S,
        Dtype::IQ1_M,
        Dtype::IQ2_XXS,
        Dtype::IQ2_XS,
        Dtype::IQ2_S,
        Dtype::IQ3_XXS,
        Dtype::IQ3_S,
        Dtype::IQ4_NL,
        Dtype::IQ4_XS,
        Dtype::TQ1_0,
        Dtype::TQ2_0,
        Dtype::MXFP4,
        Dtype::Nf4,
        Dtype::Int4Group128,
        Dtype::Int4Zero32,
    ];

    /// Name, numbers in a block, bytes of a block.
    fn facts(self) -> (&'static str, usize, usize) {
        match self {
            Dtype::F32 => ("F32", 1, 4),
            Dtype::F16 => ("F16", 1, 2),
            Dtype::BF16 => ("BF16", 1, 2),
            Dtype::Q8_0 => ("Q8_0", 32, q8_0::BYTES),
            Dtype::Q4_0 => ("Q4_0", 32, q4_0::BYTES),
            Dtype::Q4_K => ("Q4_K", 256, q4_k::BYTES),
            Dtype::Q5_K => ("Q5_K", 256, q5_k::BYTES),
            Dtype::Q6_K => ("Q6_K", 256, q6_k::BYTES),
            Dtype::F8_E4M3 => ("F8_E4M3", 1, 1),
            Dtype::Q4_1 => ("Q4_1", 32, q4_1::BYTES),
            Dtype::Q5_0 => ("Q5_0", 32, q5_0::BYTES),
            Dtype::Q5_1 => ("Q5_1", 32, q5_1::BYTES),
            Dtype::Q2_K => ("Q2_K", 256, q2_k::BYTES),
            Dtype::Q3_K => ("Q3_K", 256, q3_k::BYTES),
            Dtype::IQ1_S => ("IQ1_S", 256, iq1_s::BYTES),
            Dtype::IQ1_M => ("IQ1_M", 256, iq1_m::BYTES),
            Dtype::IQ2_XXS => ("IQ2_XXS", 256, iq2_xxs::BYTES),
            Dtype::IQ2_XS => ("IQ2_XS", 256, iq2_xs::BYTES),
            Dtype::IQ2_S => ("IQ2_S", 256, iq2_s::BYTES),
            Dtype::IQ3_XXS => ("IQ3_XXS", 256, iq3_xxs::BYTES),
            Dtype::IQ3_S => ("IQ3_S", 256, iq3_s::BYTES),
            Dtype::IQ4_NL => ("IQ4_NL", 32, iq4_nl::BYTES),
            Dtype::IQ4_XS => ("IQ4_XS", 256, iq4_xs::BYTES),
            Dtype::TQ1_0 => ("TQ1_0", 256, tq1_0::BYTES),
            Dtype::TQ2_0 => ("TQ2_0", 256, tq2_0::BYTES),
            Dtype::MXFP4 => ("MXFP4", 32, mxfp4::BYTES),
            Dtype::Nf4 => ("NF4", 64, nf4::BYTES),
            Dtype::Int4Group128 => ("INT4_G128", 128, int4_group128::BYTES),
            Dtype::Int4Zero32 => ("INT4_Z32", 32, int4_zero32::BYTES),
        }
    }

    /// The name people know it by, in capitals as GGUF tools print it.
    pub fn name(self) -> &'static str {
        self.facts().0
    }

    /// Numbers in one block; 1 for plain floats.
    pub fn block_elements(self) -> usize {
        self.facts().1
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> usize {
        self.facts().2
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
