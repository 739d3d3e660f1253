//! Arithmetic without memory and memory without arithmetic: how fast plain code is at best.

use std::hint::black_box;

const LANES: usize = 32;

/// Integer multiply-adds; returns how many operations were done.
pub(super) fn int8(rounds: usize) -> u64 {
    let (factor, mut sums) = (black_box(3i32), [1i32; LANES]);
    for _ in 0..rounds {
        sums.iter_mut().for_each(|sum| *sum = sum.wrapping_mul(factor).wrapping_add(1));
    }
    black_box(sums);
    (2 * LANES * rounds) as u64
}

/// Float multiplications and additions; returns how many operations were done.
pub(super) fn float(rounds: usize) -> u64 {
    let (factor, mut sums) = (black_box(0.5f32), [1f32; LANES]);
    for _ in 0..rounds {
        sums.iter_mut().for_each(|sum| *sum = *sum * factor + 1.0);
    }
    black_box(sums);
    (2 * LANES * rounds) as u64
}

/// Reads every byte of whole groups of words and returns a sum that keeps the compiler from leaving any out.
#[inline(always)]
pub(crate) fn read(bytes: &[u8]) -> u64 {
    let mut lanes = [0u64; LANES];
    for words in bytes.chunks_exact(8 * LANES) {
        for (lane, word) in lanes.iter_mut().zip(words.chunks_exact(8)) {
            *lane = lane.wrapping_add(u64::from_le_bytes(word.try_into().expect("eight bytes")));
        }
    }
    lanes.iter().fold(0, |sum, lane| sum.wrapping_add(*lane))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_sums_every_whole_group_of_words() {
        let bytes: Vec<u8> = 1u64.to_le_bytes().repeat(2 * LANES);
        assert_eq!(read(&bytes), 2 * LANES as u64);
        assert_eq!(read(&bytes[1..]) & 0xff, 0);
    }
}
