//! Blocks of 32 turned so that every lane belongs to one of eight rows.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use super::lanes::{store_floats, zero_floats};
use super::tile::{ROWS, halves, turned, words};
use crate::activations::{Int8Block32, Rows};
use crate::blocks::{q4_0, q8_0};
use crate::ops::WeightRows;
use crate::pool::TileMut;
use crate::x86::tile::tile_loops;

/// Columns that are multiplied together, as many as there are registers for.
const TOGETHER: usize = 4;

/// One block of eight rows; lane r of every register belongs to row r.
pub(super) struct Tile32<K> {
    /// For every four columns, their quants.
    quants: [__m256i; 8],
    scale: __m256,
    kind: PhantomData<K>,
}

/// How a format's quants are multiplied.
pub(super) trait Kind {
    /// Signed quants: the multiply takes unsigned × signed, so the sign of the weight moves to x. Their products fill
    /// sixteen bits; those of unsigned nibbles leave room to sum a whole block there.
    const SIGNED: bool;
    /// What was added to unsigned quants.
    const OFFSET: i32;
}

pub(super) struct Q80;
pub(super) struct Q40;

impl Kind for Q80 {
    const SIGNED: bool = true;
    const OFFSET: i32 = 0;
}

impl Kind for Q40 {
    const SIGNED: bool = false;
    const OFFSET: i32 = q4_0::OFFSET;
}

tile_loops!("avx2,fma,f16c", Int8Block32, Tile32<K>, [K: Kind]);

impl<K: Kind> Tile32<K> {
    /// Adds this block times some columns to their sums.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn add<const N: usize>(&self, x: [&Int8Block32; N], sums: &mut [__m256]) {
        let ones = _mm256_set1_epi16(1);
        let mut products = [_mm256_setzero_si256(); N];
        for (four, &quants) in self.quants.iter().enumerate() {
            for column in 0..N {
                let values = _mm256_set1_epi32(x[column].four_bytes(4 * four));
                products[column] = if K::SIGNED {
                    let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(quants), _mm256_sign_epi8(values, quants));
                    _mm256_add_epi32(products[column], _mm256_madd_epi16(pairs, ones))
                } else {
                    _mm256_add_epi16(products[column], _mm256_maddubs_epi16(quants, values))
                };
            }
        }
        for column in 0..N {
            let summed = if K::SIGNED { products[column] } else { _mm256_madd_epi16(products[column], ones) };
            let total = _mm256_sub_epi32(summed, _mm256_set1_epi32(K::OFFSET * x[column].sum));
            let scale = _mm256_mul_ps(self.scale, _mm256_set1_ps(x[column].scale));
            sums[column] = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(total), sums[column]);
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(super) fn turn_q8_0(blocks: &[&[u8; q8_0::BYTES]; ROWS]) -> Tile32<Q80> {
    Tile32 { quants: turned(blocks, q8_0::QUANTS), scale: halves(words(blocks, 0)), kind: PhantomData }
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(super) fn turn_q4_0(blocks: &[&[u8; q4_0::BYTES]; ROWS]) -> Tile32<Q40> {
    let nibble = _mm256_set1_epi8(15);
    let mut quants = [nibble; 8];
    for word in 0..4 {
        let bytes = words(blocks, q4_0::QUANTS + 4 * word);
        quants[word] = _mm256_and_si256(bytes, nibble);
        quants[word + 4] = _mm256_and_si256(_mm256_srli_epi32::<4>(bytes), nibble);
    }
    Tile32 { quants, scale: halves(words(blocks, 0)), kind: PhantomData }
}
