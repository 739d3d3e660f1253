//! Blocks of 256 turned so that every lane belongs to one of eight rows.

use std::arch::x86_64::*;

use super::lanes::{field, load, store_floats, zero_floats};
use crate::activations::{Int8Block256, Rows};
use crate::blocks::{q4_k, q5_k, q6_k};
use crate::ops::WeightRows;
use crate::pool::TileMut;
use crate::x86::tile::tile_loops;

/// Weight rows of a tile.
pub(super) const ROWS: usize = 8;
/// Columns that are multiplied together, as many as there are registers for.
const TOGETHER: usize = 4;

/// One block of eight rows; lane r of every register belongs to row r.
pub(super) struct Tile<const GROUPS: usize, const SUMMED: usize> {
    /// For every four columns, their unsigned quants. Products of `SUMMED` of them are summed in sixteen bits.
    quants: [__m256i; 64],
    /// Scales of the groups of 256 / GROUPS columns, in both halves of a lane.
    scales: [__m256i; GROUPS],
    /// 16-bit factors of pairs of partial sums of x that are to be subtracted.
    offsets: [__m256i; 8],
    scale: __m256,
    /// Scale of the offsets; `None` where they are subtracted from the products as integers.
    minimum: Option<__m256>,
}

/// Four products of quants up to 15 with bytes up to 127, summed in pairs, leave room for eight sums in sixteen bits.
type TileQ4K = Tile<8, 8>;
/// Quants up to 31 leave room for four.
type TileQ5K = Tile<8, 4>;
/// Quants up to 63 leave room for two.
type TileQ6K = Tile<16, 2>;

tile_loops!("avx2,fma,f16c", Int8Block256, Tile<GROUPS, SUMMED>, [const GROUPS: usize, const SUMMED: usize]);

impl<const GROUPS: usize, const SUMMED: usize> Tile<GROUPS, SUMMED> {
    /// Adds this block times some columns to their sums.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn add<const N: usize>(&self, x: [&Int8Block256; N], sums: &mut [__m256]) {
        let mut totals = [_mm256_setzero_si256(); N];
        for (run, quants) in self.quants.as_chunks::<SUMMED>().0.iter().enumerate() {
            let mut products = [_mm256_setzero_si256(); N];
            for (four, &quants) in quants.iter().enumerate() {
                let at = 4 * (run * SUMMED + four);
                for column in 0..N {
                    let values = _mm256_set1_epi32(x[column].four_bytes(at));
                    products[column] = _mm256_add_epi16(products[column], _mm256_maddubs_epi16(quants, values));
                }
            }
            let scale = self.scales[run * SUMMED * GROUPS / 64];
            for column in 0..N {
                totals[column] = _mm256_add_epi32(totals[column], _mm256_madd_epi16(products[column], scale));
            }
        }
        for column in 0..N {
            let mut offsets = _mm256_setzero_si256();
            for (pair, &factors) in self.offsets.iter().enumerate() {
                let pair = _mm256_set1_epi32(x[column].sum_pair(pair));
                offsets = _mm256_add_epi32(offsets, _mm256_madd_epi16(factors, pair));
            }
            let x_scale = _mm256_set1_ps(x[column].scale);
            let scale = _mm256_mul_ps(self.scale, x_scale);
            sums[column] = match self.minimum {
                Some(minimum) => {
                    let sum = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(totals[column]), sums[column]);
                    _mm256_fnmadd_ps(_mm256_mul_ps(minimum, x_scale), _mm256_cvtepi32_ps(offsets), sum)
                }
                None => {
                    let total = _mm256_sub_epi32(totals[column], offsets);
                    _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(total), sums[column])
                }
            };
        }
    }
}

/// One 32-bit word of each of eight blocks.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn words<const BYTES: usize>(blocks: &[&[u8; BYTES]; ROWS], at: usize) -> __m256i {
    let word = |row: usize| i32::from_le_bytes(*field(blocks[row], at));
    _mm256_setr_epi32(word(0), word(1), word(2), word(3), word(4), word(5), word(6), word(7))
}

/// Eight words of each of eight blocks, turned: register j holds word j of every block.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn turned<const BYTES: usize>(blocks: &[&[u8; BYTES]; ROWS], at: usize) -> [__m256i; 8] {
    let mut rows = [_mm256_setzero_si256(); 8];
    for (row, block) in rows.iter_mut().zip(blocks) {
        *row = load::<[u8; 32]>(field(block, at));
    }
    let mut pairs = rows;
    for at in (0..8).step_by(2) {
        pairs[at] = _mm256_unpacklo_epi32(rows[at], rows[at + 1]);
        pairs[at + 1] = _mm256_unpackhi_epi32(rows[at], rows[at + 1]);
    }
    let mut fours = rows;
    for at in (0..8).step_by(4) {
        fours[at] = _mm256_unpacklo_epi64(pairs[at], pairs[at + 2]);
        fours[at + 1] = _mm256_unpackhi_epi64(pairs[at], pairs[at + 2]);
        fours[at + 2] = _mm256_unpacklo_epi64(pairs[at + 1], pairs[at + 3]);
        fours[at + 3] = _mm256_unpackhi_epi64(pairs[at + 1], pairs[at + 3]);
    }
    let mut out = rows;
    for word in 0..4 {
        out[word] = _mm256_permute2x128_si256::<0x20>(fours[word], fours[word + 4]);
        out[word + 4] = _mm256_permute2x128_si256::<0x31>(fours[word], fours[word + 4]);
    }
    out
}

/// The half-precision numbers in the lower halves of the lanes.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(super) fn halves(words: __m256i) -> __m256 {
    let lower = _mm256_and_si256(words, _mm256_set1_epi32(0xffff));
    let packed = _mm_packus_epi32(_mm256_castsi256_si128(lower), _mm256_extracti128_si256::<1>(lower));
    _mm256_cvtph_ps(packed)
}

/// The bytes of four words as numbers of their own, in both halves of the lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn bytes_twice(words: __m256i) -> [__m256i; 4] {
    let mask = _mm256_set1_epi32(0xff);
    let twice = |bytes| _mm256_or_si256(bytes, _mm256_slli_epi32::<16>(bytes));
    [
        twice(_mm256_and_si256(words, mask)),
        twice(_mm256_and_si256(_mm256_srli_epi32::<8>(words), mask)),
        twice(_mm256_and_si256(_mm256_srli_epi32::<16>(words), mask)),
        twice(_mm256_srli_epi32::<24>(words)),
    ]
}

/// Everything of Q4_K and Q5_K but the quants, which follow.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn with_minima<const BYTES: usize, const SUMMED: usize>(
    blocks: &[&[u8; BYTES]; ROWS],
    quants: [__m256i; 64],
) -> Tile<8, SUMMED> {
    let header = words(blocks, 0);
    let [first, second, third] =
        [words(blocks, q4_k::SCALES), words(blocks, q4_k::SCALES + 4), words(blocks, q4_k::SCALES + 8)];
    let (six, four, two) =
        (_mm256_set1_epi32(0x3f3f_3f3f), _mm256_set1_epi32(0x0f0f_0f0f), _mm256_set1_epi32(0x3030_3030));
    let upper = |packed| _mm256_and_si256(_mm256_srli_epi32::<2>(packed), two);
    let low_scales = bytes_twice(_mm256_and_si256(first, six));
    let high_scales = bytes_twice(_mm256_or_si256(_mm256_and_si256(third, four), upper(first)));
    let low_minima = bytes_twice(_mm256_and_si256(second, six));
    let high_nibbles = _mm256_and_si256(_mm256_srli_epi32::<4>(third), four);
    let high_minima = bytes_twice(_mm256_or_si256(high_nibbles, upper(second)));
    let (mut scales, mut offsets) = ([header; 8], [header; 8]);
    scales[..4].copy_from_slice(&low_scales);
    scales[4..].copy_from_slice(&high_scales);
    // A minimum serves two partial sums.
    offsets[..4].copy_from_slice(&low_minima);
    offsets[4..].copy_from_slice(&high_minima);
    Tile { quants, scales, offsets, scale: halves(header), minimum: Some(halves(_mm256_srli_epi32::<16>(header))) }
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(super) fn turn_q4_k(blocks: &[&[u8; q4_k::BYTES]; ROWS]) -> TileQ4K {
    let nibble = _mm256_set1_epi8(15);
    let mut quants = [nibble; 64];
    for pair in 0..4 {
        for (word, bytes) in turned(blocks, q4_k::QUANTS + 32 * pair).into_iter().enumerate() {
            quants[16 * pair + word] = _mm256_and_si256(bytes, nibble);
            quants[16 * pair + 8 + word] = _mm256_and_si256(_mm256_srli_epi32::<4>(bytes), nibble);
        }
    }
    with_minima(blocks, quants)
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(super) fn turn_q5_k(blocks: &[&[u8; q5_k::BYTES]; ROWS]) -> TileQ5K {
    let (nibble, fifth) = (_mm256_set1_epi8(15), _mm256_set1_epi8(16));
    let join = |nibbles, bits| _mm256_or_si256(_mm256_and_si256(nibbles, nibble), _mm256_and_si256(bits, fifth));
    let mut quants = [nibble; 64];
    let mut high = turned(blocks, q5_k::HIGH_BITS);
    // Bit 0 of what is left of a byte belongs to the group at hand and moves to bit 4.
    for pair in 0..4 {
        for (word, bytes) in turned(blocks, q5_k::QUANTS + 32 * pair).into_iter().enumerate() {
            quants[16 * pair + word] = join(bytes, _mm256_slli_epi32::<4>(high[word]));
            quants[16 * pair + 8 + word] = join(_mm256_srli_epi32::<4>(bytes), _mm256_slli_epi32::<3>(high[word]));
            high[word] = _mm256_srli_epi32::<2>(high[word]);
        }
    }
    with_minima(blocks, quants)
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(super) fn turn_q6_k(blocks: &[&[u8; q6_k::BYTES]; ROWS]) -> TileQ6K {
    let (nibble, pair) = (_mm256_set1_epi8(15), _mm256_set1_epi8(0x30));
    let join = |low, high| _mm256_or_si256(_mm256_and_si256(low, nibble), _mm256_and_si256(high, pair));
    let mut quants = [nibble; 64];
    for half in 0..2 {
        let high = turned(blocks, q6_k::HIGH_BITS + 32 * half);
        let (first, second) = (turned(blocks, 64 * half), turned(blocks, 64 * half + 32));
        for word in 0..8 {
            let at = 32 * half + word;
            quants[at] = join(first[word], _mm256_slli_epi32::<4>(high[word]));
            quants[at + 8] = join(second[word], _mm256_slli_epi32::<2>(high[word]));
            quants[at + 16] = join(_mm256_srli_epi32::<4>(first[word]), high[word]);
            quants[at + 24] = join(_mm256_srli_epi32::<4>(second[word]), _mm256_srli_epi32::<2>(high[word]));
        }
    }
    let (mut scales, mut offsets) = ([nibble; 16], [nibble; 8]);
    for word in 0..4 {
        let packed = words(blocks, q6_k::SCALES + 4 * word);
        // Bytes 0 and 2, then 1 and 3, each extended to sixteen bits.
        let even = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(packed));
        let odd = _mm256_srai_epi16::<8>(packed);
        let lower = |pair| _mm256_blend_epi16::<0b1010_1010>(pair, _mm256_slli_epi32::<16>(pair));
        let upper = |pair| _mm256_blend_epi16::<0b0101_0101>(pair, _mm256_srli_epi32::<16>(pair));
        let four = [lower(even), lower(odd), upper(even), upper(odd)];
        scales[4 * word..4 * word + 4].copy_from_slice(&four);
        for pair in 0..2 {
            let both = _mm256_blend_epi16::<0b1010_1010>(four[2 * pair], four[2 * pair + 1]);
            offsets[2 * word + pair] = _mm256_slli_epi16::<5>(both);
        }
    }
    // The scale is the last of the block, so its word starts two bytes early.
    let scale = halves(_mm256_srli_epi32::<16>(words(blocks, q6_k::SCALE - 2)));
    Tile { quants, scales, offsets, scale, minimum: None }
}
