//! Byte layout of every block format: where each field lies, with unpacking and packing of the shared scales.

/// Numbers in a small block, and in a block of activations that meets one.
pub(crate) const SMALL_BLOCK: usize = 32;
/// Numbers in a super-block, and in a block of activations that meets one.
pub(crate) const SUPER_BLOCK: usize = 256;

/// Q8_0: an f16 scale, then 32 signed bytes.
pub(crate) mod q8_0 {
    /// Bytes of one block.
    pub(crate) const BYTES: usize = 34;
    /// The first of the 32 signed bytes; the f16 scale lies at 0.
    pub(crate) const QUANTS: usize = 2;
}

/// Q4_0: an f16 scale, then 16 bytes; byte `i` holds element `i` in its low nibble and `i + 16` in its high one.
pub(crate) mod q4_0 {
    /// Bytes of one block.
    pub(crate) const BYTES: usize = 18;
    /// The first of the 16 bytes of nibbles; the f16 scale lies at 0.
    pub(crate) const QUANTS: usize = 2;
    /// What a nibble has to be lowered by.
    pub(crate) const OFFSET: i32 = 8;
}

/// Q4_K: f16 scale of scales, f16 scale of minima, 12 bytes of 6-bit pairs, then 128 bytes of nibbles.
///
/// Each run of 32 bytes of nibbles serves two sub-blocks of 32: the low nibbles the first, the high ones the second.
pub(crate) mod q4_k {
    /// Bytes of one block.
    pub(crate) const BYTES: usize = 144;
    /// The f16 that multiplies the 6-bit minima; the one for the 6-bit scales lies at 0.
    pub(crate) const MINIMUM_SCALE: usize = 2;
    /// The 12 bytes of packed 6-bit scales and minima.
    pub(crate) const SCALES: usize = 4;
    /// The 128 bytes of nibbles.
    pub(crate) const QUANTS: usize = 16;
}

/// Q5_K: the header of Q4_K, then 32 bytes of fifth bits before the nibbles.
///
/// Bit `b` of fifth-bit byte `i` belongs to element `i` of sub-block `b`.
pub(crate) mod q5_k {
    /// Bytes of one block.
    pub(crate) const BYTES: usize = 176;
    /// The 32 bytes of fifth bits.
    pub(crate) const HIGH_BITS: usize = 16;
    /// The 128 bytes of nibbles.
    pub(crate) const QUANTS: usize = 48;
}

/// Q6_K: 128 bytes of low nibbles, 64 bytes of upper bit pairs, 16 signed scales, then their f16 scale.
///
/// Two halves of 128 elements each: in a half, low nibbles of 64 bytes serve elements 0..64 and high ones 64..128,
/// and bit pair `p` of upper byte `i` belongs to element `32 p + i`.
pub(crate) mod q6_k {
    /// Bytes of one block.
    pub(crate) const BYTES: usize = 210;
    /// The 64 bytes of upper bit pairs; the low nibbles lie at 0.
    pub(crate) const HIGH_BITS: usize = 128;
    /// The 16 signed scales.
    pub(crate) const SCALES: usize = 192;
    /// The f16 that multiplies the scales.
    pub(crate) const SCALE: usize = 208;
    /// What a 6-bit value has to be lowered by.
    pub(crate) const OFFSET: i32 = 32;
}

/// Q4_1: an f16 scale, an f16 minimum, then nibbles as in Q4_0.
pub(crate) mod q4_1 {
    /// Bytes of one block.
    pub(crate) const BYTES: usize = 20;
    /// The f16 minimum; the f16 scale lies at 0.
    pub(crate) const MINIMUM: usize = 2;
    /// The 16 bytes of nibbles.
    pub(crate) const QUANTS: usize = 4;
}

/// Q5_0: an f16 scale, 32 fifth bits (bit `i` belongs to element `i`), then nibbles as in Q4_0.
pub(crate) mod q5_0 {
    /// Bytes of one block.
    pub(crate) const BYTES: usize = 22;
    /// The four bytes of fifth bits; the f16 scale lies at 0.
    pub(crate) const HIGH_BITS: usize = 2;
    /// The 16 bytes of nibbles.
    pub(crate) const QUANTS: usize = 6;
    /// What a 5-bit value has to be lowered by.
    pub(crate) const OFFSET: i32 = 16;
}

/// Q5_1: an f16 scale, an f16 minimum, then as Q5_0.
pub(crate) mod q5_1 {
    /// Bytes of one block.
    pub(crate) const BYTES: usize = 24;
    /// The f16 minimum; the f16 scale lies at 0.
    pub(crate) const MINIMUM: usize = 2;
    /// The four bytes of fifth bits.
    pub(crate) const HIGH_BITS: usize = 4;
    /// The 16 bytes of nibbles.
    pub(crate) const QUANTS: usize = 8;
}

/// IQ4_NL: an f16 scale, then nibbles as in Q4_0 that choose from sixteen levels.
pub(crate) mod iq4_nl {
    /// Bytes of one block.
    pub(crate) const BYTES: usize = 18;
    /// The 16 bytes of nibbles; the f16 scale lies at 0.
    pub(crate) const QUANTS: usize = 2;
    /// What a nibble stands for.
    pub(crate) const LEVELS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
}

/// MXFP4: an exponent, then nibbles as in Q4_0 that are floats of one mantissa bit.
pub(crate) mod mxfp4 {
    /// Bytes of one block.
    pub(crate) const BYTES: usize = 17;
    /// The 16 bytes of nibbles; the exponent lies at 0.
    pub(crate) const QUANTS: usize = 1;
    /// Twice what a nibble stands for, plus the offset.
    pub(crate) const LEVELS: [i8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];
    /// What a level has to be lowered by.
    pub(crate) const OFFSET: i32 = 12;

    /// Half of 2^(exponent − 127), which is exact for every exponent; the two lowest give subnormal floats.
    #[inline]
    pub(crate) fn scale(exponent: u8) -> f32 {
        let bits = if exponent < 2 { 0x0020_0000 << exponent } else { u32::from(exponent - 1) << 23 };
        f32::from_bits(bits)
    }
}

/// NF4: an f16 scale, then two runs of nibbles as in Q4_0 that choose from sixteen levels.
pub(crate) mod nf4 {
    /// Bytes of one block.
    pub(crate) const BYTES: usize = 34;
    /// The 32 bytes of nibbles; the f16 scale lies at 0.
    pub(crate) const QUANTS: usize = 2;
    /// What a nibble stands for: the NormalFloat levels of QLoRA times 127, rounded.
    pub(crate) const LEVELS: [i8; 16] = [-127, -88, -67, -50, -36, -23, -12, 0, 10, 20, 31, 43, 56, 71, 92, 127];
}

/// INT4_G128: an f16 scale, then four runs of nibbles as in Q4_0.
pub(crate) mod int4_group128 {
    /// Bytes of one block.
    pub(crate) const BYTES: usize = 66;
    /// The 64 bytes of nibbles; the f16 scale lies at 0.
    pub(crate) const QUANTS: usize = 2;
    /// What a nibble has to be lowered by.
    pub(crate) const OFFSET: i32 = 8;
}

/// INT4_Z32: an f16 scale, a zero point, a reserved byte, then nibbles as in Q4_0.
pub(crate) mod int4_zero32 {
    /// Bytes of one block.
    pub(crate) const BYTES: usize = 20;
    /// What the nibbles have to be lowered by; the f16 scale lies at 0.
    pub(crate) const ZERO: usize = 2;
    /// The 16 bytes of nibbles; the byte before them is reserved, zero when written and not read.
    pub(crate) const QUANTS: usize = 4;
}

/// Q2_K: 16 bytes of scale (low nibble) and minimum (high nibble), 64 bytes of bit pairs, then their two f16 scales.
///
/// Two halves of 128 elements: bit pair `p` of byte `i` of a half belongs to its element `32 p + i`.
pub(crate) mod q2_k {
    /// Bytes of one block.
    pub(crate) const BYTES: usize = 84;
    /// The 64 bytes of bit pairs; scales and minima lie at 0.
    pub(crate) const QUANTS: usize = 16;
    /// The f16 that multiplies the scales.
    pub(crate) const SCALE: usize = 80;
    /// The f16 that multiplies the minima.
    pub(crate) const MINIMUM_SCALE: usize = 82;
}

/// Q3_K: 32 bytes of third bits, 64 bytes of bit pairs as in Q2_K, 12 bytes of 6-bit scales, then their f16 scale.
///
/// Bit `b` of third-bit byte `i` belongs to element `i` of sub-block `b` of 32.
pub(crate) mod q3_k {
    /// Bytes of one block.
    pub(crate) const BYTES: usize = 110;
    /// The 64 bytes of bit pairs; the third bits lie at 0.
    pub(crate) const QUANTS: usize = 32;
    /// The 12 bytes of packed scales: low nibbles of 0..8, high nibbles of 8..16, then the upper bit pairs of all.
    pub(crate) const SCALES: usize = 96;
    /// The f16 that multiplies the scales.
    pub(crate) const SCALE: usize = 108;
    /// What a 3-bit value has to be lowered by.
    pub(crate) const OFFSET: u8 = 4;
    /// What a 6-bit scale has to be lowered by.
    pub(crate) const SCALE_OFFSET: i16 = 32;
}

/// IQ4_XS: an f16 scale, 16 upper scale bits, four bytes of lower nibbles, then eight runs of nibbles as in IQ4_NL.
pub(crate) mod iq4_xs {
    /// Bytes of one block.
    pub(crate) const BYTES: usize = 136;
    /// The upper two bits of the eight scales; the f16 scale of scales lies at 0.
    pub(crate) const HIGH_SCALES: usize = 2;
    /// The lower four bits of the eight scales.
    pub(crate) const LOW_SCALES: usize = 4;
    /// The 128 bytes of nibbles.
    pub(crate) const QUANTS: usize = 8;
    /// What a 6-bit scale has to be lowered by.
    pub(crate) const SCALE_OFFSET: i16 = 32;
}

/// TQ1_0: base-three digits, then their f16 scale.
///
/// A byte is a fraction of 256 whose base-three digits, first digit first, are elements one stride apart: 32 bytes of
/// five digits with stride 32, 16 of five with stride 16, 4 of four with stride 4.
pub(crate) mod tq1_0 {
    /// Bytes of one block.
    pub(crate) const BYTES: usize = 54;
    /// The f16 scale; the digits lie at 0.
    pub(crate) const SCALE: usize = 52;
    /// Where each kind of bytes starts, how many there are, and how many digits each holds.
    pub(crate) const PARTS: [(usize, usize, usize); 3] = [(0, 32, 5), (32, 16, 5), (48, 4, 4)];
    /// What a digit has to be lowered by.
    pub(crate) const OFFSET: u8 = 1;
}

/// TQ2_0: 64 bytes of bit pairs as in Q2_K, then their f16 scale.
pub(crate) mod tq2_0 {
    /// Bytes of one block.
    pub(crate) const BYTES: usize = 66;
    /// The f16 scale; the bit pairs lie at 0.
    pub(crate) const SCALE: usize = 64;
    /// What a 2-bit value has to be lowered by.
    pub(crate) const OFFSET: u8 = 1;
}

/// IQ2_XXS: an f16 scale, then per 32 elements a word of four point indices and a word of four 7-bit sign patterns
/// with a 4-bit scale on top.
pub(crate) mod iq2_xxs {
    /// Bytes of one block.
    pub(crate) const BYTES: usize = 66;
    /// The first word of indices; the f16 scale lies at 0.
    pub(crate) const QUANTS: usize = 2;
    /// The first word of signs and scale.
    pub(crate) const SIGNS: usize = 6;
}

/// IQ2_XS: an f16 scale, 32 words of a 9-bit point index and a 7-bit sign pattern, then eight bytes of 4-bit scales.
pub(crate) mod iq2_xs {
    /// Bytes of one block.
    pub(crate) const BYTES: usize = 74;
    /// The 32 words; the f16 scale lies at 0.
    pub(crate) const QUANTS: usize = 2;
    /// The scales of sixteen elements each, low nibble first.
    pub(crate) const SCALES: usize = 66;
}

/// IQ2_S: an f16 scale, 32 bytes of point indices, 32 of signs, 8 of upper index bit pairs, 8 of 4-bit scales.
pub(crate) mod iq2_s {
    /// Bytes of one block.
    pub(crate) const BYTES: usize = 82;
    /// The lower eight bits of the point indices; the f16 scale lies at 0.
    pub(crate) const QUANTS: usize = 2;
    /// A bit per element: whether it is negative.
    pub(crate) const SIGNS: usize = 34;
    /// The upper two bits of the point indices.
    pub(crate) const HIGH_BITS: usize = 66;
    /// The scales of sixteen elements each, low nibble first.
    pub(crate) const SCALES: usize = 74;
}

/// IQ3_XXS: an f16 scale, 64 point indices, then per 32 elements a word of four 7-bit sign patterns with a 4-bit scale
/// on top.
pub(crate) mod iq3_xxs {
    /// Bytes of one block.
    pub(crate) const BYTES: usize = 98;
    /// The point indices; the f16 scale lies at 0.
    pub(crate) const QUANTS: usize = 2;
    /// The eight words of signs and scales.
    pub(crate) const SIGNS: usize = 66;
}

/// IQ3_S: an f16 scale, 64 bytes of point indices, 8 of upper index bits, 32 of signs, 4 of 4-bit scales.
pub(crate) mod iq3_s {
    /// Bytes of one block.
    pub(crate) const BYTES: usize = 110;
    /// The lower eight bits of the point indices; the f16 scale lies at 0.
    pub(crate) const QUANTS: usize = 2;
    /// The ninth bits of the point indices.
    pub(crate) const HIGH_BITS: usize = 66;
    /// A bit per element: whether it is negative.
    pub(crate) const SIGNS: usize = 74;
    /// The scales of 32 elements each, low nibble first.
    pub(crate) const SCALES: usize = 106;
}

/// IQ1_S: an f16 scale, 32 bytes of point indices, then per 32 elements a word of four upper index bit triples, a 3-bit
/// scale and the sign of the shift.
pub(crate) mod iq1_s {
    /// Bytes of one block.
    pub(crate) const BYTES: usize = 50;
    /// The lower eight bits of the point indices; the f16 scale lies at 0.
    pub(crate) const QUANTS: usize = 2;
    /// The eight words.
    pub(crate) const HIGH_BITS: usize = 34;
}

/// IQ1_M: 32 bytes of point indices, 16 bytes of nibbles (upper index bits and the sign of the shift), then four words
/// of four 3-bit scales each, whose top nibbles together are the f16 scale.
pub(crate) mod iq1_m {
    /// Bytes of one block.
    pub(crate) const BYTES: usize = 56;
    /// The nibbles; the lower eight bits of the point indices lie at 0.
    pub(crate) const HIGH_BITS: usize = 32;
    /// The four words.
    pub(crate) const SCALES: usize = 48;
}

/// The little-endian f16 at byte `at` of a block, widened exactly.
#[inline]
pub(crate) fn half_at(block: &[u8], at: usize) -> f32 {
    half_to_f32(word16(block, at))
}

/// The little-endian 16-bit word at byte `at` of a block.
#[inline]
pub(crate) fn word16(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

/// The little-endian 32-bit word at byte `at` of a block.
#[inline]
pub(crate) fn word32(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*block[at..].first_chunk().expect("a word inside the block"))
}

/// The little-endian 64-bit word at byte `at` of a block.
#[inline]
pub(crate) fn word64(block: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*block[at..].first_chunk().expect("a word inside the block"))
}

/// Widens an f16 exactly, without a branch so that loops over it become vector code.
///
/// Subnormal halves are common as scales; they are built by a subtraction of normal floats because arithmetic on
/// subnormal floats is slow.
#[inline]
pub fn half_to_f32(bits: u16) -> f32 {
    const EXPONENT_SHIFT: u32 = 112 << 23;
    const SMALLEST_NORMAL: u32 = 113 << 23;
    let sign = u32::from(bits & 0x8000) << 16;
    let magnitude = u32::from(bits & 0x7fff) << 13;
    let normal = magnitude + EXPONENT_SHIFT;
    let subnormal = (f32::from_bits(SMALLEST_NORMAL | magnitude) - f32::from_bits(SMALLEST_NORMAL)).to_bits();
    let finite = if magnitude < 0x400 << 13 { subnormal } else { normal };
    let widened = if magnitude >= 0x7c00 << 13 { magnitude | 0x7f80_0000 } else { finite };
    f32::from_bits(sign | widened)
}

/// Widens the upper half of a single-precision number.
#[inline]
pub(crate) fn brain_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The 8-bit float of four exponent bits next to a number, the even one of two; the greatest for what lies beyond.
pub fn f32_to_byte(number: f32) -> u8 {
    const GREATEST: f32 = 448.0;
    const SMALLEST_NORMAL: f32 = 1.0 / 64.0;
    /// Below the smallest normal number, steps are this many to one.
    const SUBNORMAL_STEPS: f32 = 512.0;
    const EXPONENT_SHIFT: u32 = 120 << 3;
    let sign = (number.to_bits() >> 24) as u8 & 0x80;
    let size = number.abs().min(GREATEST);
    if size < SMALLEST_NORMAL {
        return sign | (size * SUBNORMAL_STEPS).round_ties_even() as u8;
    }
    let bits = size.to_bits();
    sign | (((bits + 0x7_ffff + (bits >> 20 & 1)) >> 20) - EXPONENT_SHIFT) as u8
}

/// Widens an 8-bit float of four exponent bits exactly; its only special values are the two NaNs.
#[inline]
pub(crate) fn byte_to_f32(bits: u8) -> f32 {
    // As the upper bits of an f16 it is the same float with an exponent that is eight too small.
    let half = (u16::from(bits & 0x80) << 8) | (u16::from(bits & 0x7f) << 7);
    let value = half_to_f32(half) * 256.0;
    if bits & 0x7f == 0x7f { f32::NAN } else { value }
}

/// The eight 6-bit scales and eight 6-bit minima of a Q4_K or Q5_K block.
///
/// The first four of each lie in the low six bits of bytes 0..4 and 4..8; the last four are split between the low and
/// high nibbles of bytes 8..12 and the two upper bits of bytes 0..4 and 4..8.
#[inline]
pub(crate) fn unpack_scales(packed: &[u8; 12]) -> ([u8; 8], [u8; 8]) {
    let mut scales = [0; 8];
    let mut minima = [0; 8];
    for i in 0..4 {
        scales[i] = packed[i] & 63;
        minima[i] = packed[i + 4] & 63;
        scales[i + 4] = (packed[i + 8] & 15) | ((packed[i] >> 6) << 4);
        minima[i + 4] = (packed[i + 8] >> 4) | ((packed[i + 4] >> 6) << 4);
    }
    (scales, minima)
}

/// The inverse of [`unpack_scales`]; every value must be below 64.
#[inline]
pub(crate) fn pack_scales(scales: &[u8; 8], minima: &[u8; 8]) -> [u8; 12] {
    let mut packed = [0; 12];
    for i in 0..4 {
        packed[i] = scales[i] | ((scales[i + 4] >> 4) << 6);
        packed[i + 4] = minima[i] | ((minima[i + 4] >> 4) << 6);
        packed[i + 8] = (scales[i + 4] & 15) | ((minima[i + 4] & 15) << 4);
    }
    packed
}
