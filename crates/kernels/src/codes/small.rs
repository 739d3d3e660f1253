//! Formats with runs of 32 nibbles, plain or with fifth bits or as choices from sixteen levels: nothing but data.

use crate::blocks::{half_at, int4_group128, int4_zero32, iq4_nl, mxfp4, nf4, q4_1, q5_0, q5_1, word32};

/// A format whose runs of 32 numbers share a scale: number = scale × (code − zero) + minimum.
///
/// A code is a nibble, the low ones of sixteen bytes first and then the high ones, unless said otherwise.
pub(crate) trait Format32<const BYTES: usize> {
    /// Runs of 32 in a block.
    const RUNS: usize = 1;
    /// Where the sixteen bytes of nibbles of the first run lie; the other runs follow.
    const QUANTS: usize;
    /// Where a word with the fifth bits of the codes lies.
    const HIGH_BITS: Option<usize> = None;
    /// What the nibbles choose from; without levels they are codes themselves.
    const LEVELS: Option<&'static [i8; 16]> = None;
    /// Whether codes may be negative, down to -127; otherwise they are at most 31.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "x86 multiplies unsigned by signed bytes"))]
    const SIGNED: bool = false;
    /// What lies at the start of a block.
    const SCALE: Scale = Scale::Half;
    /// The code that stands for zero.
    const ZERO: Zero = Zero::Always(0);
    /// Where the f16 lies that is added to every number.
    const MINIMUM: Option<usize> = None;
}

/// How a block says what a code is worth.
#[derive(Clone, Copy)]
pub(crate) enum Scale {
    /// As an f16.
    Half,
    /// As the exponent of a power of two.
    Exponent,
}

/// The code that stands for zero.
#[derive(Clone, Copy)]
pub(crate) enum Zero {
    /// The same in all blocks.
    Always(i32),
    /// The byte at this place of the block.
    At(usize),
}

/// The codes of one run.
#[inline]
pub(crate) fn codes<const BYTES: usize, F: Format32<BYTES>>(block: &[u8; BYTES], run: usize) -> [i8; 32] {
    let bytes = &block[F::QUANTS + 16 * run..];
    let high = F::HIGH_BITS.map_or(0, |at| word32(block, at));
    std::array::from_fn(|i| {
        let nibble = (bytes[i % 16] >> (i / 16 * 4)) & 15;
        let fifth = ((high >> i) & 1) as u8;
        F::LEVELS.map_or((nibble | fifth << 4) as i8, |levels| levels[usize::from(nibble)])
    })
}

/// What a code is worth.
#[inline]
pub(crate) fn scale<const BYTES: usize, F: Format32<BYTES>>(block: &[u8; BYTES]) -> f32 {
    match F::SCALE {
        Scale::Half => half_at(block, 0),
        Scale::Exponent => mxfp4::scale(block[0]),
    }
}

/// The code that stands for zero.
#[inline]
pub(crate) fn zero<const BYTES: usize, F: Format32<BYTES>>(block: &[u8; BYTES]) -> i32 {
    match F::ZERO {
        Zero::Always(zero) => zero,
        Zero::At(at) => i32::from(block[at]),
    }
}

/// Q4_1.
pub(crate) struct Q4With1;

impl Format32<{ q4_1::BYTES }> for Q4With1 {
    const QUANTS: usize = q4_1::QUANTS;
    const MINIMUM: Option<usize> = Some(q4_1::MINIMUM);
}

/// Q5_0.
pub(crate) struct Q5With0;

impl Format32<{ q5_0::BYTES }> for Q5With0 {
    const QUANTS: usize = q5_0::QUANTS;
    const HIGH_BITS: Option<usize> = Some(q5_0::HIGH_BITS);
    const ZERO: Zero = Zero::Always(q5_0::OFFSET);
}

/// Q5_1.
pub(crate) struct Q5With1;

impl Format32<{ q5_1::BYTES }> for Q5With1 {
    const QUANTS: usize = q5_1::QUANTS;
    const HIGH_BITS: Option<usize> = Some(q5_1::HIGH_BITS);
    const MINIMUM: Option<usize> = Some(q5_1::MINIMUM);
}

/// IQ4_NL.
pub(crate) struct Iq4Nl;

impl Format32<{ iq4_nl::BYTES }> for Iq4Nl {
    const QUANTS: usize = iq4_nl::QUANTS;
    const LEVELS: Option<&'static [i8; 16]> = Some(&iq4_nl::LEVELS);
    const SIGNED: bool = true;
}

/// MXFP4.
pub(crate) struct Mxfp4;

impl Format32<{ mxfp4::BYTES }> for Mxfp4 {
    const QUANTS: usize = mxfp4::QUANTS;
    const LEVELS: Option<&'static [i8; 16]> = Some(&mxfp4::LEVELS);
    const ZERO: Zero = Zero::Always(mxfp4::OFFSET);
    const SCALE: Scale = Scale::Exponent;
}

/// NF4.
pub(crate) struct Nf4;

impl Format32<{ nf4::BYTES }> for Nf4 {
    const RUNS: usize = 2;
    const QUANTS: usize = nf4::QUANTS;
    const LEVELS: Option<&'static [i8; 16]> = Some(&nf4::LEVELS);
    const SIGNED: bool = true;
}

/// INT4_G128.
pub(crate) struct Int4Group128;

impl Format32<{ int4_group128::BYTES }> for Int4Group128 {
    const RUNS: usize = 4;
    const QUANTS: usize = int4_group128::QUANTS;
    const ZERO: Zero = Zero::Always(int4_group128::OFFSET);
}

/// INT4_Z32.
pub(crate) struct Int4Zero32;

impl Format32<{ int4_zero32::BYTES }> for Int4Zero32 {
    const QUANTS: usize = int4_zero32::QUANTS;
    const ZERO: Zero = Zero::At(int4_zero32::ZERO);
}
