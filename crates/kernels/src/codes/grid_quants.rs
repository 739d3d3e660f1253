//! Formats with blocks of 256 whose codes are points of a lattice, chosen by index, with signs or shifts.

use super::{CodeRange, Codes256, Format256, grids};
use crate::blocks::{iq1_m, iq1_s, iq2_s, iq2_xs, iq2_xxs, iq3_s, iq3_xxs, word16, word32};

/// IQ1_S.
pub(crate) struct Iq1S;
/// IQ1_M.
pub(crate) struct Iq1M;
/// IQ2_XXS.
pub(crate) struct Iq2Xxs;
/// IQ2_XS.
pub(crate) struct Iq2Xs;
/// IQ2_S.
pub(crate) struct Iq2S;
/// IQ3_XXS.
pub(crate) struct Iq3Xxs;
/// IQ3_S.
pub(crate) struct Iq3S;

/// What the two bits of an IQ2 point stand for.
const LEVELS2: [i8; 4] = [8, 25, 43, 0];
/// What the bits of an IQ3_XXS point stand for.
const LEVELS3_XXS: [i8; 8] = [4, 12, 20, 28, 36, 44, 52, 62];
/// What the bits of an IQ3_S point stand for.
const LEVELS3_S: [i8; 8] = [1, 3, 5, 7, 9, 11, 13, 15];
/// Eight times what the two bits of an IQ1 point stand for; the shift that comes with it is one of these units.
const LEVELS1: [i8; 4] = [-8, 0, 8, 0];

static IQ1: [[i8; 8]; 2048] = points(&grids::IQ1, &LEVELS1);
static IQ2_XXS: [[i8; 8]; 256] = points(&grids::IQ2_XXS, &LEVELS2);
static IQ2_XS: [[i8; 8]; 512] = points(&grids::IQ2_XS, &LEVELS2);
static IQ2_S: [[i8; 8]; 1024] = points(&grids::IQ2_S, &LEVELS2);
static IQ3_XXS: [[i8; 4]; 256] = points(&grids::IQ3_XXS, &LEVELS3_XXS);
static IQ3_S: [[i8; 4]; 512] = points(&grids::IQ3_S, &LEVELS3_S);

/// Unpacks the indices of `D` levels in each word.
const fn points<const D: usize, const L: usize, const N: usize>(words: &[u16; N], levels: &[i8; L]) -> [[i8; D]; N] {
    let bits = 16 / D;
    let mut points = [[0; D]; N];
    let mut at = 0;
    while at < N * D {
        let index = (words[at / D] as usize >> (at % D * bits)) % L;
        points[at / D][at % D] = levels[index];
        at += 1;
    }
    points
}

/// Seven sign bits and the eighth that makes their number even.
#[inline]
fn even_signs(seven: u32) -> u8 {
    let seven = (seven & 127) as u8;
    seven | ((seven.count_ones() as u8 & 1) << 7)
}

/// Negates the codes of an eight whose bits in `signs` are set.
#[inline]
fn negate(codes: &mut [i8; 8], signs: u8) {
    for (bit, code) in codes.iter_mut().enumerate() {
        // Two's complement without a branch: the mask is all ones where the sign is set.
        let mask = -(((signs >> bit) & 1) as i8);
        *code = (*code ^ mask).wrapping_sub(mask);
    }
}

/// The block with its 32 eights from `eight` and its scales from `scale`, which are odd numbers: 2 s + 1.
#[inline]
fn block(eight: impl Fn(usize) -> [i8; 8], scale: impl Fn(usize) -> u16) -> Codes256 {
    let mut codes = [0; 256];
    for (at, codes) in codes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *codes = eight(at);
    }
    Codes256 { codes, scales: std::array::from_fn(|group| (2 * scale(group) + 1) as i16), minima: [0; 16] }
}

/// Two fours side by side.
#[inline]
fn pair([first, second]: [[i8; 4]; 2]) -> [i8; 8] {
    std::array::from_fn(|at| if at < 4 { first[at] } else { second[at - 4] })
}

/// Nibble `at` of packed bytes, low ones first.
#[inline]
fn nibble(bytes: &[u8], at: usize) -> u16 {
    u16::from((bytes[at / 2] >> (at % 2 * 4)) & 15)
}

impl Format256<{ iq2_xxs::BYTES }> for Iq2Xxs {
    const CODES: CodeRange = CodeRange::Shifted { offset: 43, largest: 86 };
    const FACTOR: f32 = 0.125;

    fn unpack(bytes: &[u8; iq2_xxs::BYTES]) -> Codes256 {
        let signs_and_scale = |run: usize| word32(bytes, iq2_xxs::QUANTS + 8 * run + 4);
        let eight = |at: usize| {
            let mut codes = IQ2_XXS[usize::from(bytes[iq2_xxs::QUANTS + at / 4 * 8 + at % 4])];
            negate(&mut codes, even_signs(signs_and_scale(at / 4) >> (at % 4 * 7)));
            codes
        };
        block(eight, |group| (signs_and_scale(group / 2) >> 28) as u16)
    }
}

impl Format256<{ iq2_xs::BYTES }> for Iq2Xs {
    const CODES: CodeRange = CodeRange::Shifted { offset: 43, largest: 86 };
    const FACTOR: f32 = 0.125;

    fn unpack(bytes: &[u8; iq2_xs::BYTES]) -> Codes256 {
        let eight = |at: usize| {
            let word = word16(bytes, iq2_xs::QUANTS + 2 * at);
            let mut codes = IQ2_XS[usize::from(word & 511)];
            negate(&mut codes, even_signs(u32::from(word >> 9)));
            codes
        };
        block(eight, |group| nibble(&bytes[iq2_xs::SCALES..], group))
    }
}

impl Format256<{ iq2_s::BYTES }> for Iq2S {
    const CODES: CodeRange = CodeRange::Shifted { offset: 43, largest: 86 };
    const FACTOR: f32 = 0.125;

    fn unpack(bytes: &[u8; iq2_s::BYTES]) -> Codes256 {
        let eight = |at: usize| {
            let high = (bytes[iq2_s::HIGH_BITS + at / 4] >> (at % 4 * 2)) & 3;
            let mut codes = IQ2_S[usize::from(bytes[iq2_s::QUANTS + at]) | usize::from(high) << 8];
            negate(&mut codes, bytes[iq2_s::SIGNS + at]);
            codes
        };
        block(eight, |group| nibble(&bytes[iq2_s::SCALES..], group))
    }
}

impl Format256<{ iq3_xxs::BYTES }> for Iq3Xxs {
    const CODES: CodeRange = CodeRange::Shifted { offset: 62, largest: 124 };
    const FACTOR: f32 = 0.25;

    fn unpack(bytes: &[u8; iq3_xxs::BYTES]) -> Codes256 {
        let signs_and_scale = |run: usize| word32(bytes, iq3_xxs::SIGNS + 4 * run);
        let four = |at: usize| IQ3_XXS[usize::from(bytes[iq3_xxs::QUANTS + at])];
        let eight = |at: usize| {
            let mut codes = pair([four(2 * at), four(2 * at + 1)]);
            negate(&mut codes, even_signs(signs_and_scale(at / 4) >> (at % 4 * 7)));
            codes
        };
        block(eight, |group| (signs_and_scale(group / 2) >> 28) as u16)
    }
}

impl Format256<{ iq3_s::BYTES }> for Iq3S {
    const CODES: CodeRange = CodeRange::Shifted { offset: 15, largest: 30 };

    fn unpack(bytes: &[u8; iq3_s::BYTES]) -> Codes256 {
        let four = |at: usize| {
            let high = (bytes[iq3_s::HIGH_BITS + at / 8] >> (at % 8)) & 1;
            IQ3_S[usize::from(bytes[iq3_s::QUANTS + at]) | usize::from(high) << 8]
        };
        let eight = |at: usize| {
            let mut codes = pair([four(2 * at), four(2 * at + 1)]);
            negate(&mut codes, bytes[iq3_s::SIGNS + at]);
            codes
        };
        block(eight, |group| nibble(&bytes[iq3_s::SCALES..], group / 2))
    }
}

/// A point of IQ1, shifted up by an eighth or down when `shift` is set.
#[inline]
fn shifted(index: usize, shift: u16) -> [i8; 8] {
    let unit = if shift == 0 { 1 } else { -1 };
    IQ1[index].map(|code| code.wrapping_add(unit))
}

impl Format256<{ iq1_s::BYTES }> for Iq1S {
    const CODES: CodeRange = CodeRange::Shifted { offset: 9, largest: 18 };
    const FACTOR: f32 = 0.125;

    fn unpack(bytes: &[u8; iq1_s::BYTES]) -> Codes256 {
        let word = |run: usize| word16(bytes, iq1_s::HIGH_BITS + 2 * run);
        let eight = |at: usize| {
            let high = (word(at / 4) >> (at % 4 * 3)) & 7;
            shifted(usize::from(bytes[iq1_s::QUANTS + at]) | usize::from(high) << 8, word(at / 4) >> 15)
        };
        block(eight, |group| (word(group / 2) >> 12) & 7)
    }
}

impl Format256<{ iq1_m::BYTES }> for Iq1M {
    const CODES: CodeRange = CodeRange::Shifted { offset: 9, largest: 18 };
    const FACTOR: f32 = 0.125;

    fn unpack(bytes: &[u8; iq1_m::BYTES]) -> Codes256 {
        let eight = |at: usize| {
            let high = nibble(&bytes[iq1_m::HIGH_BITS..], at);
            shifted(usize::from(bytes[at]) | usize::from(high & 7) << 8, high >> 3)
        };
        block(eight, |group| (word16(bytes, iq1_m::SCALES + group / 4 * 2) >> (group % 4 * 3)) & 7)
    }

    fn scale_bits(bytes: &[u8; iq1_m::BYTES]) -> u16 {
        let top = |word: usize| word16(bytes, iq1_m::SCALES + 2 * word) >> 12;
        top(0) | top(1) << 4 | top(2) << 8 | top(3) << 12
    }
}
