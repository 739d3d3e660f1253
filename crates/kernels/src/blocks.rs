//! Byte layout of every block format: where each field lies, with unpacking and packing of the shared scales.

/// Numbers in a small block (Q8_0, Q4_0).
pub(crate) const SMALL_BLOCK: usize = 32;
/// Numbers in a super-block (Q4_K, Q5_K, Q6_K).
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

/// The little-endian f16 at byte `at` of a block, widened exactly.
#[inline]
pub(crate) fn half_at(block: &[u8], at: usize) -> f32 {
    half_to_f32(u16::from_le_bytes([block[at], block[at + 1]]))
}

/// Widens an f16 exactly, without a branch so that loops over it become vector code.
///
/// Subnormal halves are common as scales; they are built by a subtraction of normal floats because arithmetic on
/// subnormal floats is slow.
#[inline]
pub(crate) fn half_to_f32(bits: u16) -> f32 {
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
