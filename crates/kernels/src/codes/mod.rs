//! The two forms that all integer formats share: signed codes under scales, for 32 and for 256 numbers.
//!
//! A format says how its blocks become one of them; decoding and multiplication are written once per form. Products of
//! codes are exact integers, and the scales multiply them last, so every instruction set can follow to the bit.

mod grids;
mod k_quants;
mod lattice;
mod small;

pub(crate) use k_quants::{Iq4Xs, Q2K, Q3K, Tq1, Tq2};
pub(crate) use lattice::{Iq1M, Iq1S, Iq2S, Iq2Xs, Iq2Xxs, Iq3S, Iq3Xxs, Lattice};
pub(crate) use small::{
    Format32, Int4Group128, Int4Zero32, Iq4Nl, Mxfp4, Nf4, Q4With1, Q5With0, Q5With1, Scale, Zero, codes, scale, zero,
};

use crate::blocks::{half_at, half_to_f32, word16};

/// What codes may be. The multiply of vector units takes unsigned × signed bytes.
#[derive(Clone, Copy)]
pub(crate) enum CodeRange {
    /// From `-offset` to `largest - offset`, so that codes plus the offset are unsigned and below 128.
    Shifted {
        /// The least code, negated.
        offset: u8,
        /// The greatest code plus the offset.
        #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "x86 multiplies unsigned by signed bytes"))]
        largest: u8,
    },
    /// From -127 to 127.
    Wide,
}

/// A format with blocks of 256: number `i` = scale × `scales[i / 16]` × `codes[i]` − minimum × `minima[i / 16]`.
pub(crate) trait Format256<const BYTES: usize> {
    /// What codes may be, which decides how vector kernels multiply them.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "x86 multiplies unsigned by signed bytes"))]
    const CODES: CodeRange;
    /// What the f16 scale is multiplied with: a power of two that makes the codes integers.
    const FACTOR: f32 = 1.0;
    /// Where the f16 that multiplies the minima lies, in formats that have minima.
    const MINIMUM_SCALE: Option<usize> = None;

    /// Codes of magnitude 127 at most.
    fn codes(block: &[u8; BYTES]) -> [i8; 256];

    /// Integer scales of sixteen codes each.
    fn scales(block: &[u8; BYTES]) -> [i16; 16];

    /// Integer minima of sixteen codes each.
    fn minima(_block: &[u8; BYTES]) -> [i16; 16] {
        [0; 16]
    }

    /// The f16 scale, as bits.
    fn scale_bits(block: &[u8; BYTES]) -> u16 {
        word16(block, 0)
    }

    /// What a code times its integer scale is worth.
    fn scale(block: &[u8; BYTES]) -> f32 {
        half_to_f32(Self::scale_bits(block)) * Self::FACTOR
    }

    /// What an integer minimum is worth, in formats that have minima.
    fn minimum(block: &[u8; BYTES]) -> Option<f32> {
        Self::MINIMUM_SCALE.map(|at| half_at(block, at))
    }
}

/// Calls `$function::<BYTES, Format>` for a format with runs of 32; `$dtype` must be one.
macro_rules! with_format32 {
    ($dtype:expr, $function:ident) => {{
        use $crate::blocks::*;
        use $crate::codes::*;
        match $dtype {
            Dtype::Q4_1 => $function::<{ q4_1::BYTES }, Q4With1>,
            Dtype::Q5_0 => $function::<{ q5_0::BYTES }, Q5With0>,
            Dtype::Q5_1 => $function::<{ q5_1::BYTES }, Q5With1>,
            Dtype::IQ4_NL => $function::<{ iq4_nl::BYTES }, Iq4Nl>,
            Dtype::MXFP4 => $function::<{ mxfp4::BYTES }, Mxfp4>,
            Dtype::Nf4 => $function::<{ nf4::BYTES }, Nf4>,
            Dtype::Int4Group128 => $function::<{ int4_group128::BYTES }, Int4Group128>,
            Dtype::Int4Zero32 => $function::<{ int4_zero32::BYTES }, Int4Zero32>,
            other => unreachable!("{other} has no runs of 32"),
        }
    }};
}

/// Calls `$function::<BYTES, Format>` for a format with blocks of 256; `$dtype` must be one.
macro_rules! with_format256 {
    ($dtype:expr, $function:ident) => {{
        use $crate::blocks::*;
        use $crate::codes::*;
        match $dtype {
            Dtype::Q2_K => $function::<{ q2_k::BYTES }, Q2K>,
            Dtype::Q3_K => $function::<{ q3_k::BYTES }, Q3K>,
            Dtype::IQ1_S => $function::<{ iq1_s::BYTES }, Iq1S>,
            Dtype::IQ1_M => $function::<{ iq1_m::BYTES }, Iq1M>,
            Dtype::IQ2_XXS => $function::<{ iq2_xxs::BYTES }, Iq2Xxs>,
            Dtype::IQ2_XS => $function::<{ iq2_xs::BYTES }, Iq2Xs>,
            Dtype::IQ2_S => $function::<{ iq2_s::BYTES }, Iq2S>,
            Dtype::IQ3_XXS => $function::<{ iq3_xxs::BYTES }, Iq3Xxs>,
            Dtype::IQ3_S => $function::<{ iq3_s::BYTES }, Iq3S>,
            Dtype::IQ4_XS => $function::<{ iq4_xs::BYTES }, Iq4Xs>,
            Dtype::TQ1_0 => $function::<{ tq1_0::BYTES }, Tq1>,
            Dtype::TQ2_0 => $function::<{ tq2_0::BYTES }, Tq2>,
            other => unreachable!("{other} has no blocks of 256"),
        }
    }};
}

pub(crate) use {with_format32, with_format256};
