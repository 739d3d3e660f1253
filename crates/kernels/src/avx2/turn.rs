//! Words of weight rows turned in registers, so that a lane belongs to a row.

use std::arch::x86_64::*;

use super::lanes::load;
use crate::layout::{GROUP_ROWS, GROUP_WORD};
use crate::vector::field;

/// Rows that are turned at once.
const ROWS: usize = 8;

/// Interleaves as many words as `out` takes, a multiple of four, from byte `at` on of sixteen blocks.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn turn<const BYTES: usize>(blocks: &[&[u8; BYTES]; GROUP_ROWS], at: usize, out: &mut [[u8; GROUP_WORD]]) {
    for (part, blocks) in blocks.as_chunks::<ROWS>().0.iter().enumerate() {
        let place = 4 * ROWS * part;
        let (eights, rest) = out.as_chunks_mut::<8>();
        for (eight, words) in eights.iter_mut().enumerate() {
            for (out, word) in words.iter_mut().zip(turned(blocks, at + 32 * eight)) {
                store(word, &mut out[place..]);
            }
        }
        let done = at + 32 * eights.len();
        for (four, words) in rest.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            for (out, word) in words.iter_mut().zip(turned4(blocks, done + 16 * four)) {
                store(word, &mut out[place..]);
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(words: __m256i, out: &mut [u8]) {
    let out: &mut [u8; 32] = out.first_chunk_mut().expect("room for a register");
    // SAFETY: the reference guarantees thirty-two writable bytes.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), words) }
}

/// Eight words of each of eight blocks, turned: register j holds word j of every block.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn turned<const BYTES: usize>(blocks: &[&[u8; BYTES]; ROWS], at: usize) -> [__m256i; 8] {
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

/// Four words of each of eight blocks, turned.
#[inline]
#[target_feature(enable = "avx2")]
fn turned4<const BYTES: usize>(blocks: &[&[u8; BYTES]; ROWS], at: usize) -> [__m256i; 4] {
    // Rows i and i + 4 share a register, so that lanes come out in order.
    let mut rows = [_mm256_setzero_si256(); 4];
    for (row, register) in rows.iter_mut().enumerate() {
        let four = |row: usize| super::lanes::load16(field(blocks[row], at));
        *register = _mm256_set_m128i(four(row + 4), four(row));
    }
    let [a, b, c, d] = rows;
    let (low_ab, high_ab) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let (low_cd, high_cd) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    [
        _mm256_unpacklo_epi64(low_ab, low_cd),
        _mm256_unpackhi_epi64(low_ab, low_cd),
        _mm256_unpacklo_epi64(high_ab, high_cd),
        _mm256_unpackhi_epi64(high_ab, high_cd),
    ]
}
