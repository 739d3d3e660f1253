//! Formats with blocks of 256 whose codes are points of a lattice, chosen by index, with signs or shifts.

use super::{CodeRange, Format256, grids};
use crate::blocks::{iq1_m, iq1_s, iq2_s, iq2_xs, iq2_xxs, iq3_s, iq3_xxs, word16, word32, word64};

/// A format of lattice points. Eight codes are the bytes of a word, lowest first.
pub(crate) trait Lattice<const BYTES: usize> {
    /// What codes may be.
    const RANGE: CodeRange;
    /// What the f16 scale is multiplied with.
    const SCALE_FACTOR: f32;

    /// The eights of one run of 32, without signs; plus the offset in formats that have none.
    fn eights(block: &[u8; BYTES], run: usize) -> [u64; 4];

    /// For each run of 32 its negative codes, a bit each, in formats that have signs.
    fn signs(_block: &[u8; BYTES]) -> Option<[u32; 8]> {
        None
    }

    /// Sixteen nibbles s, lowest first: the integer scale of a group is 2 s + 1.
    fn scale_nibbles(block: &[u8; BYTES]) -> u64;

    /// The f16 scale, as bits.
    fn half(block: &[u8; BYTES]) -> u16 {
        word16(block, 0)
    }
}

impl<const BYTES: usize, L: Lattice<BYTES>> Format256<BYTES> for L {
    const CODES: CodeRange = L::RANGE;
    const FACTOR: f32 = L::SCALE_FACTOR;

    fn codes(block: &[u8; BYTES]) -> [i8; 256] {
        let offset = match L::RANGE {
            CodeRange::Shifted { offset, .. } => offset as i8,
            CodeRange::Wide => 0,
        };
        let signs = L::signs(block);
        let mut codes = [0; 256];
        for (run, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let eights = L::eights(block, run);
            for (i, code) in codes.iter_mut().enumerate() {
                let point = eights[i / 8].to_le_bytes()[i % 8] as i8;
                *code = match signs {
                    Some(signs) if (signs[run] >> i) & 1 == 1 => -point,
                    Some(_) => point,
                    None => point - offset,
                };
            }
        }
        codes
    }

    fn scales(block: &[u8; BYTES]) -> [i16; 16] {
        let nibbles = L::scale_nibbles(block);
        std::array::from_fn(|group| 2 * ((nibbles >> (4 * group)) & 15) as i16 + 1)
    }

    fn scale_bits(block: &[u8; BYTES]) -> u16 {
        L::half(block)
    }
}

static IQ2_XXS: [u64; 256] = eights(&grids::IQ2_XXS, [8, 25, 43, 0]);
static IQ2_XS: [u64; 512] = eights(&grids::IQ2_XS, [8, 25, 43, 0]);
static IQ2_S: [u64; 1024] = eights(&grids::IQ2_S, [8, 25, 43, 0]);
static IQ3_XXS: [u32; 256] = fours(&grids::IQ3_XXS, [4, 12, 20, 28, 36, 44, 52, 62]);
static IQ3_S: [u32; 512] = fours(&grids::IQ3_S, [1, 3, 5, 7, 9, 11, 13, 15]);
/// In eighths, plus the offset: -1, 0 and 1.
static IQ1: [u64; 2048] = eights(&grids::IQ1, [1, 9, 17, 0]);
/// An eighth in each code: what points of IQ1 are shifted up or down by.
const EIGHTHS: u64 = 0x0101_0101_0101_0101;

/// Puts levels for the eight 2-bit indices of each word.
const fn eights<const N: usize>(words: &[u16; N], levels: [u64; 4]) -> [u64; N] {
    let mut points = [0; N];
    let mut at = 0;
    while at < 8 * N {
        let index = (words[at / 8] >> (at % 8 * 2)) & 3;
        points[at / 8] |= levels[index as usize] << (at % 8 * 8);
        at += 1;
    }
    points
}

/// Puts levels for the four 4-bit indices of each word.
const fn fours<const N: usize>(words: &[u16; N], levels: [u32; 8]) -> [u32; N] {
    let mut points = [0; N];
    let mut at = 0;
    while at < 4 * N {
        let index = (words[at / 4] >> (at % 4 * 4)) & 7;
        points[at / 4] |= levels[index as usize] << (at % 4 * 8);
        at += 1;
    }
    points
}

/// Eight fours as four eights.
#[inline]
fn paired(four: impl Fn(usize) -> u32) -> [u64; 4] {
    let mut eights = [0; 4];
    for (at, eight) in eights.iter_mut().enumerate() {
        *eight = u64::from(four(2 * at)) | (u64::from(four(2 * at + 1)) << 32);
    }
    eights
}

/// A word for each run; a plain loop, which the compiler turns into vectors.
#[inline]
fn words_of_runs(word: impl Fn(usize) -> u32) -> [u32; 8] {
    let mut words = [0; 8];
    for (run, out) in words.iter_mut().enumerate() {
        *out = word(run);
    }
    words
}

/// Four patterns of seven signs, each with the eighth that makes their number even.
#[inline]
fn even_signs(word: u32) -> u32 {
    let sevens = (word & 0x7f) | ((word << 1) & 0x7f00) | ((word << 2) & 0x7f_0000) | ((word << 3) & 0x7f00_0000);
    // The lowest bit of each byte collects the parity of its own bits only.
    let parity = sevens ^ (sevens >> 4);
    let parity = parity ^ (parity >> 2);
    let parity = (parity ^ (parity >> 1)) & 0x0101_0101;
    sevens | (parity << 7)
}

/// Eight numbers below sixteen as nibbles that each serve two groups.
#[inline]
fn nibbles_twice(number: impl Fn(usize) -> u64) -> u64 {
    let mut bytes = 0;
    for run in 0..8 {
        bytes |= number(run) << (8 * run);
    }
    bytes | (bytes << 4)
}

/// IQ2_XXS.
pub(crate) struct Iq2Xxs;

impl Lattice<{ iq2_xxs::BYTES }> for Iq2Xxs {
    const RANGE: CodeRange = CodeRange::Shifted { offset: 43, largest: 86 };
    const SCALE_FACTOR: f32 = 0.125;

    #[inline]
    fn eights(block: &[u8; iq2_xxs::BYTES], run: usize) -> [u64; 4] {
        let point = |at: usize| IQ2_XXS[usize::from(block[iq2_xxs::QUANTS + 8 * run + at])];
        [point(0), point(1), point(2), point(3)]
    }

    #[inline]
    fn signs(block: &[u8; iq2_xxs::BYTES]) -> Option<[u32; 8]> {
        Some(words_of_runs(|run| even_signs(word32(block, iq2_xxs::SIGNS + 8 * run))))
    }

    #[inline]
    fn scale_nibbles(block: &[u8; iq2_xxs::BYTES]) -> u64 {
        nibbles_twice(|run| u64::from(word32(block, iq2_xxs::SIGNS + 8 * run) >> 28))
    }
}

/// IQ2_XS.
pub(crate) struct Iq2Xs;

impl Lattice<{ iq2_xs::BYTES }> for Iq2Xs {
    const RANGE: CodeRange = CodeRange::Shifted { offset: 43, largest: 86 };
    const SCALE_FACTOR: f32 = 0.125;

    #[inline]
    fn eights(block: &[u8; iq2_xs::BYTES], run: usize) -> [u64; 4] {
        let words = word64(block, iq2_xs::QUANTS + 8 * run);
        let point = |at: usize| IQ2_XS[(words >> (16 * at)) as usize & 511];
        [point(0), point(1), point(2), point(3)]
    }

    #[inline]
    fn signs(block: &[u8; iq2_xs::BYTES]) -> Option<[u32; 8]> {
        Some(words_of_runs(|run| {
            let words = word64(block, iq2_xs::QUANTS + 8 * run) >> 9;
            let seven = |at: usize| (words >> (16 * at)) as u32 & 127;
            even_signs(seven(0) | (seven(1) << 7) | (seven(2) << 14) | (seven(3) << 21))
        }))
    }

    #[inline]
    fn scale_nibbles(block: &[u8; iq2_xs::BYTES]) -> u64 {
        word64(block, iq2_xs::SCALES)
    }
}

/// IQ2_S.
pub(crate) struct Iq2S;

impl Lattice<{ iq2_s::BYTES }> for Iq2S {
    const RANGE: CodeRange = CodeRange::Shifted { offset: 43, largest: 86 };
    const SCALE_FACTOR: f32 = 0.125;

    #[inline]
    fn eights(block: &[u8; iq2_s::BYTES], run: usize) -> [u64; 4] {
        let high = usize::from(block[iq2_s::HIGH_BITS + run]);
        let low = |at: usize| usize::from(block[iq2_s::QUANTS + 4 * run + at]);
        let point = |at: usize| IQ2_S[low(at) | ((high >> (2 * at)) & 3) << 8];
        [point(0), point(1), point(2), point(3)]
    }

    #[inline]
    fn signs(block: &[u8; iq2_s::BYTES]) -> Option<[u32; 8]> {
        Some(words_of_runs(|run| word32(block, iq2_s::SIGNS + 4 * run)))
    }

    #[inline]
    fn scale_nibbles(block: &[u8; iq2_s::BYTES]) -> u64 {
        word64(block, iq2_s::SCALES)
    }
}

/// IQ3_XXS.
pub(crate) struct Iq3Xxs;

impl Lattice<{ iq3_xxs::BYTES }> for Iq3Xxs {
    const RANGE: CodeRange = CodeRange::Shifted { offset: 62, largest: 124 };
    const SCALE_FACTOR: f32 = 0.25;

    #[inline]
    fn eights(block: &[u8; iq3_xxs::BYTES], run: usize) -> [u64; 4] {
        paired(|at| IQ3_XXS[usize::from(block[iq3_xxs::QUANTS + 8 * run + at])])
    }

    #[inline]
    fn signs(block: &[u8; iq3_xxs::BYTES]) -> Option<[u32; 8]> {
        Some(words_of_runs(|run| even_signs(word32(block, iq3_xxs::SIGNS + 4 * run))))
    }

    #[inline]
    fn scale_nibbles(block: &[u8; iq3_xxs::BYTES]) -> u64 {
        nibbles_twice(|run| u64::from(word32(block, iq3_xxs::SIGNS + 4 * run) >> 28))
    }
}

/// IQ3_S.
pub(crate) struct Iq3S;

impl Lattice<{ iq3_s::BYTES }> for Iq3S {
    const RANGE: CodeRange = CodeRange::Shifted { offset: 15, largest: 30 };
    const SCALE_FACTOR: f32 = 1.0;

    #[inline]
    fn eights(block: &[u8; iq3_s::BYTES], run: usize) -> [u64; 4] {
        let high = usize::from(block[iq3_s::HIGH_BITS + run]);
        paired(|at| IQ3_S[usize::from(block[iq3_s::QUANTS + 8 * run + at]) | ((high << (8 - at)) & 256)])
    }

    #[inline]
    fn signs(block: &[u8; iq3_s::BYTES]) -> Option<[u32; 8]> {
        Some(words_of_runs(|run| word32(block, iq3_s::SIGNS + 4 * run)))
    }

    #[inline]
    fn scale_nibbles(block: &[u8; iq3_s::BYTES]) -> u64 {
        let word = word32(block, iq3_s::SCALES);
        nibbles_twice(|run| u64::from((word >> (4 * run)) & 15))
    }
}

/// IQ1_S.
pub(crate) struct Iq1S;

impl Lattice<{ iq1_s::BYTES }> for Iq1S {
    const RANGE: CodeRange = CodeRange::Shifted { offset: 9, largest: 18 };
    const SCALE_FACTOR: f32 = 0.125;

    #[inline]
    fn eights(block: &[u8; iq1_s::BYTES], run: usize) -> [u64; 4] {
        let word = usize::from(word16(block, iq1_s::HIGH_BITS + 2 * run));
        let low = |at: usize| usize::from(block[iq1_s::QUANTS + 4 * run + at]);
        let point = |at: usize| shifted(low(at) | ((word >> (3 * at)) & 7) << 8, word >> 15);
        [point(0), point(1), point(2), point(3)]
    }

    #[inline]
    fn scale_nibbles(block: &[u8; iq1_s::BYTES]) -> u64 {
        nibbles_twice(|run| u64::from((word16(block, iq1_s::HIGH_BITS + 2 * run) >> 12) & 7))
    }
}

/// IQ1_M.
pub(crate) struct Iq1M;

impl Lattice<{ iq1_m::BYTES }> for Iq1M {
    const RANGE: CodeRange = CodeRange::Shifted { offset: 9, largest: 18 };
    const SCALE_FACTOR: f32 = 0.125;

    #[inline]
    fn eights(block: &[u8; iq1_m::BYTES], run: usize) -> [u64; 4] {
        let high = usize::from(word16(block, iq1_m::HIGH_BITS + 2 * run));
        let nibble = |at: usize| (high >> (4 * at)) & 15;
        let point = |at: usize| shifted(usize::from(block[4 * run + at]) | (nibble(at) & 7) << 8, nibble(at) >> 3);
        [point(0), point(1), point(2), point(3)]
    }

    #[inline]
    fn scale_nibbles(block: &[u8; iq1_m::BYTES]) -> u64 {
        // Four numbers of three bits at the bottom of each 16-bit word.
        let words = word64(block, iq1_m::SCALES);
        let place = |at: usize| (words & (0x0007_0007_0007_0007 << (3 * at))) << at;
        place(0) | place(1) | place(2) | place(3)
    }

    #[inline]
    fn half(block: &[u8; iq1_m::BYTES]) -> u16 {
        let top = |word: usize| word16(block, iq1_m::SCALES + 2 * word) >> 12;
        top(0) | top(1) << 4 | top(2) << 8 | top(3) << 12
    }
}

/// A point of IQ1, an eighth higher or, when `down` is 1, an eighth lower.
#[inline]
fn shifted(index: usize, down: usize) -> u64 {
    // No byte overflows into the next.
    let shift = if down == 0 { EIGHTHS } else { EIGHTHS.wrapping_neg() };
    IQ1[index].wrapping_add(shift)
}
