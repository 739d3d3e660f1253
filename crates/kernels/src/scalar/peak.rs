//! Arithmetic without memory and memory without arithmetic: how fast plain code is at best.

use std::hint::black_box;

use crate::reading::ReadAhead;

const LANES: usize = 32;
/// Places read at once, and bytes read in each before the next has its turn.
const STREAMS: usize = 4;
const PIECE: usize = 8 * LANES;

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
pub(super) fn read(bytes: &[u8], _ahead: ReadAhead) -> u64 {
    read_streams(bytes, |_| ())
}

/// The same in several places at once, as matrices are read row beside row: one stream alone leaves a core waiting.
/// `prefetch` asks for what is read some time after a piece.
#[inline(always)]
pub(crate) fn read_streams(bytes: &[u8], prefetch: impl Fn(&[u8])) -> u64 {
    let length = bytes.len() / STREAMS / PIECE * PIECE;
    let mut lanes = [0u64; LANES];
    let mut add = |piece: &[u8]| {
        for (lane, word) in lanes.iter_mut().zip(piece.chunks_exact(8)) {
            *lane = lane.wrapping_add(u64::from_le_bytes(word.try_into().expect("eight bytes")));
        }
    };
    for at in (0..length).step_by(PIECE) {
        for stream in 0..STREAMS {
            let piece = &bytes[stream * length + at..][..PIECE];
            prefetch(piece);
            add(piece);
        }
    }
    bytes[STREAMS * length..].chunks_exact(PIECE).for_each(add);
    lanes.iter().fold(0, |sum, lane| sum.wrapping_add(*lane))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_sums_every_whole_group_of_words() {
        let bytes: Vec<u8> = 1u64.to_le_bytes().repeat(9 * LANES);
        assert_eq!(read(&bytes, ReadAhead::None), 9 * LANES as u64);
        assert_eq!(read(&bytes[1..], ReadAhead::None) & 0xff, 0);
    }
}
