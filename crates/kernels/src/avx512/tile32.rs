//! Blocks of 32 turned so that every lane belongs to one of sixteen rows.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use super::lanes::{store_floats, zero_floats};
use crate::activations::{Int8Block32, Rows};
use crate::avx2::tile::turned;
use crate::blocks::{q4_0, q8_0};
use crate::ops::WeightRows;
use crate::pool::TileMut;
use crate::x86::tile::tile_loops;

/// Weight rows of a tile.
const ROWS: usize = 16;
/// Columns that are multiplied together.
const TOGETHER: usize = 8;

/// One block of sixteen rows; lane r of every register belongs to row r.
pub(super) struct Tile32<K> {
    /// For every four columns, their unsigned quants.
    quants: [__m512i; 8],
    scale: __m512,
    kind: PhantomData<K>,
}

/// What a format adds to its quants to make them unsigned.
pub(super) trait Kind {
    const OFFSET: i32;
}

pub(super) struct Q80;
pub(super) struct Q40;

impl Kind for Q80 {
    const OFFSET: i32 = 128;
}

impl Kind for Q40 {
    const OFFSET: i32 = q4_0::OFFSET;
}

tile_loops!("avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c", Int8Block32, Tile32<K>, [K: Kind]);

impl<K: Kind> Tile32<K> {
    /// Adds this block times some columns to their sums.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
    fn add<const N: usize>(&self, x: [&Int8Block32; N], sums: &mut [__m512]) {
        let mut products = [_mm512_setzero_si512(); N];
        for (four, &quants) in self.quants.iter().enumerate() {
            for column in 0..N {
                let values = _mm512_set1_epi32(x[column].four_bytes(4 * four));
                products[column] = _mm512_dpbusd_epi32(products[column], quants, values);
            }
        }
        for column in 0..N {
            let total = _mm512_sub_epi32(products[column], _mm512_set1_epi32(K::OFFSET * x[column].sum));
            let scale = _mm512_mul_ps(self.scale, _mm512_set1_ps(x[column].scale));
            sums[column] = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(total), sums[column]);
        }
    }
}

/// The f16 scales at the start of sixteen blocks.
#[inline]
#[target_feature(enable = "avx512f")]
fn scales<const BYTES: usize>(blocks: &[&[u8; BYTES]; ROWS]) -> __m512 {
    let mut halves = [0_u16; ROWS];
    for (half, block) in halves.iter_mut().zip(blocks) {
        *half = u16::from_le_bytes([block[0], block[1]]);
    }
    // SAFETY: the array has thirty-two readable bytes.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(halves.as_ptr().cast()) })
}

/// Eight words of each of sixteen blocks, turned.
#[inline]
#[target_feature(enable = "avx512f,avx2")]
fn turned16<const BYTES: usize>(blocks: &[&[u8; BYTES]; ROWS], at: usize) -> [__m512i; 8] {
    let (low, high) = blocks.split_at(8);
    let half = |rows: &[&[u8; BYTES]]| turned(rows.try_into().expect("eight rows"), at);
    let (low, high) = (half(low), half(high));
    let mut words = [_mm512_setzero_si512(); 8];
    for word in 0..8 {
        words[word] = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low[word]), high[word]);
    }
    words
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx2")]
pub(super) fn turn_q8_0(blocks: &[&[u8; q8_0::BYTES]; ROWS]) -> Tile32<Q80> {
    let mut quants = turned16(blocks, q8_0::QUANTS);
    for word in &mut quants {
        *word = _mm512_xor_si512(*word, _mm512_set1_epi8(-128));
    }
    Tile32 { quants, scale: scales(blocks), kind: PhantomData }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx2")]
pub(super) fn turn_q4_0(blocks: &[&[u8; q4_0::BYTES]; ROWS]) -> Tile32<Q40> {
    let nibble = _mm512_set1_epi8(15);
    let mut quants = [nibble; 8];
    for word in 0..4 {
        let mut words = [0_i32; ROWS];
        for (out, block) in words.iter_mut().zip(blocks) {
            let at = q4_0::QUANTS + 4 * word;
            *out = i32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
        }
        // SAFETY: the array has sixteen readable words.
        let bytes = unsafe { _mm512_loadu_si512(words.as_ptr().cast()) };
        quants[word] = _mm512_and_si512(bytes, nibble);
        quants[word + 4] = _mm512_and_si512(_mm512_srli_epi32::<4>(bytes), nibble);
    }
    Tile32 { quants, scale: scales(blocks), kind: PhantomData }
}
