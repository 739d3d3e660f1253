//! Blocks of 256 turned so that every lane belongs to one of sixteen rows.

use std::arch::x86_64::*;

use super::lanes::{store_floats, zero_floats};
use crate::activations::{Int8Block256, Rows};
use crate::avx2::lanes::field;
use crate::blocks::{q4_k, q5_k, q6_k};
use crate::ops::WeightRows;
use crate::pool::TileMut;
use crate::x86::tile::tile_loops;

/// Weight rows of a tile.
const ROWS: usize = 16;
/// Columns that are multiplied together.
const TOGETHER: usize = 8;

/// One block of sixteen rows; lane r of every register belongs to row r.
pub(super) struct Tile<const GROUPS: usize> {
    /// For every four columns, their unsigned quants.
    quants: [__m512i; 64],
    /// Scales of the groups of 256 / GROUPS columns.
    scales: [__m512i; GROUPS],
    /// 16-bit factors of pairs of partial sums of x that are to be subtracted.
    offsets: [__m512i; 8],
    scale: __m512,
    /// Scale of the offsets; `None` where they are subtracted from the products as integers.
    minimum: Option<__m512>,
}

tile_loops!("avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c", Int8Block256, Tile<GROUPS>, [const GROUPS: usize]);

impl<const GROUPS: usize> Tile<GROUPS> {
    /// Adds this block times some columns to their sums.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
    fn add<const N: usize>(&self, x: [&Int8Block256; N], sums: &mut [__m512]) {
        let mut totals = [_mm512_setzero_si512(); N];
        for (group, quants) in self.quants.chunks_exact(64 / GROUPS).enumerate() {
            let mut products = [_mm512_setzero_si512(); N];
            for (four, &quants) in quants.iter().enumerate() {
                let at = 4 * (group * (64 / GROUPS) + four);
                for column in 0..N {
                    let values = _mm512_set1_epi32(x[column].four_bytes(at));
                    products[column] = _mm512_dpbusd_epi32(products[column], quants, values);
                }
            }
            for column in 0..N {
                let scaled = _mm512_mullo_epi32(products[column], self.scales[group]);
                totals[column] = _mm512_add_epi32(totals[column], scaled);
            }
        }
        for column in 0..N {
            let mut offsets = _mm512_setzero_si512();
            for (pair, &factors) in self.offsets.iter().enumerate() {
                let pair = _mm512_set1_epi32(x[column].sum_pair(pair));
                offsets = _mm512_dpwssd_epi32(offsets, factors, pair);
            }
            let x_scale = _mm512_set1_ps(x[column].scale);
            let scale = _mm512_mul_ps(self.scale, x_scale);
            sums[column] = match self.minimum {
                Some(minimum) => {
                    let sum = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(totals[column]), sums[column]);
                    _mm512_fnmadd_ps(_mm512_mul_ps(minimum, x_scale), _mm512_cvtepi32_ps(offsets), sum)
                }
                None => {
                    let total = _mm512_sub_epi32(totals[column], offsets);
                    _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(total), sums[column])
                }
            };
        }
    }
}

/// One 32-bit word of each of sixteen blocks.
#[inline]
#[target_feature(enable = "avx512f")]
fn words<const BYTES: usize>(blocks: &[&[u8; BYTES]; ROWS], at: usize) -> __m512i {
    let mut words = [0; ROWS];
    for (word, block) in words.iter_mut().zip(blocks) {
        *word = i32::from_le_bytes(*field(block, at));
    }
    // SAFETY: the array has sixteen readable words.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

/// Sixteen words of each of sixteen blocks, turned: register j holds word j of every block.
#[inline]
#[target_feature(enable = "avx512f")]
fn turned<const BYTES: usize>(blocks: &[&[u8; BYTES]; ROWS], at: usize) -> [__m512i; 16] {
    let mut rows = [_mm512_setzero_si512(); 16];
    for (row, block) in rows.iter_mut().zip(blocks) {
        let bytes: &[u8; 64] = field(block, at);
        // SAFETY: the reference guarantees sixty-four readable bytes.
        *row = unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) };
    }
    // Words of two rows side by side, then of four, then whole quarters of registers change places.
    let mut pairs = rows;
    for at in (0..16).step_by(2) {
        pairs[at] = _mm512_unpacklo_epi32(rows[at], rows[at + 1]);
        pairs[at + 1] = _mm512_unpackhi_epi32(rows[at], rows[at + 1]);
    }
    let mut fours = rows;
    for at in (0..16).step_by(4) {
        fours[at] = _mm512_unpacklo_epi64(pairs[at], pairs[at + 2]);
        fours[at + 1] = _mm512_unpackhi_epi64(pairs[at], pairs[at + 2]);
        fours[at + 2] = _mm512_unpacklo_epi64(pairs[at + 1], pairs[at + 3]);
        fours[at + 3] = _mm512_unpackhi_epi64(pairs[at + 1], pairs[at + 3]);
    }
    let mut out = rows;
    for word in 0..4 {
        let [a, b, c, d] = [fours[word], fours[word + 4], fours[word + 8], fours[word + 12]];
        let (low, high) = (_mm512_shuffle_i32x4::<0x44>(a, b), _mm512_shuffle_i32x4::<0x44>(c, d));
        out[word] = _mm512_shuffle_i32x4::<0x88>(low, high);
        out[word + 4] = _mm512_shuffle_i32x4::<0xdd>(low, high);
        let (low, high) = (_mm512_shuffle_i32x4::<0xee>(a, b), _mm512_shuffle_i32x4::<0xee>(c, d));
        out[word + 8] = _mm512_shuffle_i32x4::<0x88>(low, high);
        out[word + 12] = _mm512_shuffle_i32x4::<0xdd>(low, high);
    }
    out
}

/// The half-precision numbers in the lower halves of the lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn halves(words: __m512i) -> __m512 {
    _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words))
}

/// The bytes of four words as numbers of their own.
#[inline]
#[target_feature(enable = "avx512f")]
fn bytes_of(words: __m512i) -> [__m512i; 4] {
    let mask = _mm512_set1_epi32(0xff);
    [
        _mm512_and_si512(words, mask),
        _mm512_and_si512(_mm512_srli_epi32::<8>(words), mask),
        _mm512_and_si512(_mm512_srli_epi32::<16>(words), mask),
        _mm512_srli_epi32::<24>(words),
    ]
}

/// Everything of Q4_K and Q5_K but the quants, which follow.
#[inline]
#[target_feature(enable = "avx512f")]
fn with_minima<const BYTES: usize>(blocks: &[&[u8; BYTES]; ROWS], quants: [__m512i; 64]) -> Tile<8> {
    let header = words(blocks, 0);
    let [first, second, third] =
        [words(blocks, q4_k::SCALES), words(blocks, q4_k::SCALES + 4), words(blocks, q4_k::SCALES + 8)];
    let (six, four, two) =
        (_mm512_set1_epi32(0x3f3f_3f3f), _mm512_set1_epi32(0x0f0f_0f0f), _mm512_set1_epi32(0x3030_3030));
    let upper = |packed| _mm512_and_si512(_mm512_srli_epi32::<2>(packed), two);
    let low_scales = bytes_of(_mm512_and_si512(first, six));
    let high_scales = bytes_of(_mm512_or_si512(_mm512_and_si512(third, four), upper(first)));
    let low_minima = bytes_of(_mm512_and_si512(second, six));
    let high_nibbles = _mm512_and_si512(_mm512_srli_epi32::<4>(third), four);
    let high_minima = bytes_of(_mm512_or_si512(high_nibbles, upper(second)));
    let mut scales = [header; 8];
    let mut offsets = [header; 8];
    for at in 0..4 {
        scales[at] = low_scales[at];
        scales[at + 4] = high_scales[at];
        // A minimum serves two partial sums.
        let twice = |minimum| _mm512_or_si512(minimum, _mm512_slli_epi32::<16>(minimum));
        offsets[at] = twice(low_minima[at]);
        offsets[at + 4] = twice(high_minima[at]);
    }
    Tile { quants, scales, offsets, scale: halves(header), minimum: Some(halves(_mm512_srli_epi32::<16>(header))) }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn turn_q4_k(blocks: &[&[u8; q4_k::BYTES]; ROWS]) -> Tile<8> {
    let nibble = _mm512_set1_epi8(15);
    let mut quants = [nibble; 64];
    for half in 0..2 {
        for (at, bytes) in turned(blocks, q4_k::QUANTS + 64 * half).into_iter().enumerate() {
            let place = 32 * half + at / 8 * 16 + at % 8;
            quants[place] = _mm512_and_si512(bytes, nibble);
            quants[place + 8] = _mm512_and_si512(_mm512_srli_epi32::<4>(bytes), nibble);
        }
    }
    with_minima(blocks, quants)
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn turn_q5_k(blocks: &[&[u8; q5_k::BYTES]; ROWS]) -> Tile<8> {
    let (nibble, fifth) = (_mm512_set1_epi8(15), _mm512_set1_epi8(16));
    let mut quants = [nibble; 64];
    let high = turned(blocks, q5_k::HIGH_BITS);
    let join = |nibbles, bits| _mm512_or_si512(_mm512_and_si512(nibbles, nibble), _mm512_and_si512(bits, fifth));
    // Bit b of a byte belongs to group b and moves to bit 4.
    let bit = |word: usize, group: usize| {
        let (left, right) = (4_usize.saturating_sub(group), group.saturating_sub(4));
        let (left, right) = (_mm_cvtsi32_si128(left as i32), _mm_cvtsi32_si128(right as i32));
        _mm512_srl_epi32(_mm512_sll_epi32(high[word], left), right)
    };
    for half in 0..2 {
        for (at, bytes) in turned(blocks, q5_k::QUANTS + 64 * half).into_iter().enumerate() {
            let (group, word) = (4 * half + at / 8 * 2, at % 8);
            quants[8 * group + word] = join(bytes, bit(word, group));
            quants[8 * group + 8 + word] = join(_mm512_srli_epi32::<4>(bytes), bit(word, group + 1));
        }
    }
    with_minima(blocks, quants)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn turn_q6_k(blocks: &[&[u8; q6_k::BYTES]; ROWS]) -> Tile<16> {
    let (nibble, pair) = (_mm512_set1_epi8(15), _mm512_set1_epi8(0x30));
    let join = |low, high| _mm512_or_si512(_mm512_and_si512(low, nibble), _mm512_and_si512(high, pair));
    let mut quants = [nibble; 64];
    let high = turned(blocks, q6_k::HIGH_BITS);
    for half in 0..2 {
        for (at, low) in turned(blocks, 64 * half).into_iter().enumerate() {
            let bits = high[8 * half + at % 8];
            let place = 32 * half + at;
            let (first, third) = match at / 8 {
                0 => (_mm512_slli_epi32::<4>(bits), bits),
                _ => (_mm512_slli_epi32::<2>(bits), _mm512_srli_epi32::<2>(bits)),
            };
            quants[place] = join(low, first);
            quants[place + 16] = join(_mm512_srli_epi32::<4>(low), third);
        }
    }
    let mut scales = [nibble; 16];
    let mut offsets = [nibble; 8];
    for word in 0..4 {
        let packed = words(blocks, q6_k::SCALES + 4 * word);
        let signed = [
            _mm512_srai_epi32::<24>(_mm512_slli_epi32::<24>(packed)),
            _mm512_srai_epi32::<24>(_mm512_slli_epi32::<16>(packed)),
            _mm512_srai_epi32::<24>(_mm512_slli_epi32::<8>(packed)),
            _mm512_srai_epi32::<24>(packed),
        ];
        scales[4 * word..4 * word + 4].copy_from_slice(&signed);
        for pair in 0..2 {
            let (first, second) = (signed[2 * pair], signed[2 * pair + 1]);
            // 32 × both, side by side in one lane.
            let lower = _mm512_and_si512(_mm512_slli_epi32::<5>(first), _mm512_set1_epi32(0xffff));
            offsets[2 * word + pair] = _mm512_or_si512(lower, _mm512_slli_epi32::<21>(second));
        }
    }
    // The scale is the last of the block, so its word starts two bytes early.
    let scale = halves(_mm512_srli_epi32::<16>(words(blocks, q6_k::SCALE - 2)));
    Tile { quants, scales, offsets, scale, minimum: None }
}
