//! Bytes in fewer bits, for files on their way: one prefix code for the bytes at even places, and one for the others.
//!
//! Weights repeat nothing that a compressor could point back to, but their bytes are not equally frequent: quantised
//! codes crowd around zero, and of numbers with two bytes one is mostly the exponent.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Bits of the longest code.
const LONGEST: u8 = 12;
/// Whatever the next bits are, they are one of these.
const ENTRIES: usize = 1 << LONGEST;
/// Bytes of a table: four bits for the length of each code.
const TABLE: usize = 128;

/// The bits of the code of each byte; none for bytes that do not occur.
type Lengths = [u8; 256];

/// Appends a piece in fewer bytes to `out`, unless that saves less than a sixteenth of it. Both ends know its length.
pub(crate) fn compress(piece: &[u8], out: &mut Vec<u8>) -> bool {
    let mut counts = [[0_u32; 256]; 2];
    for (place, byte) in piece.iter().enumerate() {
        counts[place % 2][usize::from(*byte)] += 1;
    }
    let lengths = counts.each_ref().map(lengths);
    let bits = |(count, length): (&u32, &u8)| u64::from(*count) * u64::from(*length);
    let bits: u64 = counts.as_flattened().iter().zip(lengths.as_flattened()).map(bits).sum();
    let bytes = 2 * TABLE as u64 + 4 * bits.div_ceil(32);
    if 16 * bytes > 15 * piece.len() as u64 {
        return false;
    }
    for pair in lengths.as_flattened().as_chunks::<2>().0 {
        out.push(pair[0] | pair[1] << 4);
    }
    let codes = lengths.each_ref().map(codes);
    let (mut word, mut filled) = (0_u64, 0);
    for pair in piece.chunks(2) {
        // Two codes are at most 24 bits.
        for (place, byte) in pair.iter().enumerate() {
            word |= u64::from(codes[place][usize::from(*byte)]) << filled;
            filled += lengths[place][usize::from(*byte)];
        }
        if filled >= 32 {
            out.extend_from_slice(&(word as u32).to_le_bytes());
            (word, filled) = (word >> 32, filled - 32);
        }
    }
    if filled > 0 {
        out.extend_from_slice(&(word as u32).to_le_bytes());
    }
    true
}

/// Fills `piece` with what was compressed; nothing if it cannot have been that.
pub(crate) fn decompress(compressed: &[u8], piece: &mut [u8]) -> Option<()> {
    let (tables, bits) = compressed.split_at_checked(2 * TABLE)?;
    let (words, []) = bits.as_chunks::<4>() else { return None };
    let (even, odd) = tables.split_at(TABLE);
    let decoders = [decoder(even)?, decoder(odd)?];
    let mut more = words.iter().map(|word| u64::from(u32::from_le_bytes(*word)));
    let (mut word, mut filled, mut spent) = (0_u64, 0_u8, 0_u64);
    for pair in piece.chunks_mut(2) {
        if filled < 32 {
            // What was read beyond the end is noticed when all has been.
            word |= more.next().unwrap_or(0) << filled;
            filled += 32;
        }
        for (byte, decoder) in pair.iter_mut().zip(&decoders) {
            let (found, length) = decoder[word as usize % ENTRIES];
            (length > 0).then_some(())?;
            *byte = found;
            (word, filled, spent) = (word >> length, filled - length, spent + u64::from(length));
        }
    }
    (spent.div_ceil(32) == words.len() as u64).then_some(())
}

/// Short codes for frequent bytes, none longer than [`LONGEST`].
fn lengths(counts: &[u32; 256]) -> Lengths {
    let mut counts = *counts;
    loop {
        let lengths = depths(&counts);
        if lengths.iter().all(|length| *length <= LONGEST) {
            return lengths;
        }
        // Bytes that are more alike have codes that are more alike.
        counts.iter_mut().filter(|count| **count > 0).for_each(|count| *count = *count / 2 + 1);
    }
}

/// How deep each byte lies in a tree that joins the two rarest branches, again and again.
fn depths(counts: &[u32; 256]) -> Lengths {
    let bytes = (0..256_usize).filter(|byte| counts[*byte] > 0);
    let mut branches: BinaryHeap<_> = bytes.clone().map(|byte| Reverse((counts[byte], byte))).collect();
    let (mut parents, mut next) = ([0; 512], 256);
    let root = loop {
        let Some(Reverse((count, branch))) = branches.pop() else { return [0; 256] };
        let Some(Reverse((more, other))) = branches.pop() else { break branch };
        (parents[branch], parents[other]) = (next, next);
        branches.push(Reverse((count + more, next)));
        next += 1;
    };
    let mut depths = [0; 256];
    for byte in bytes {
        let mut at = byte;
        while at != root {
            (at, depths[byte]) = (parents[at], depths[byte] + 1);
        }
        // A single byte needs a code too.
        depths[byte] = depths[byte].max(1);
    }
    depths
}

/// The codes that both ends make of the lengths, the first bit lowest.
fn codes(lengths: &Lengths) -> [u16; 256] {
    let (mut codes, mut next) = ([0; 256], 0_u16);
    for length in 1..=LONGEST {
        for byte in (0..256).filter(|byte| lengths[*byte] == length) {
            codes[byte] = next.reverse_bits() >> (16 - length);
            next += 1;
        }
        next <<= 1;
    }
    codes
}

/// The byte and the length of the code that some bits begin with; nothing for a table that no codes have.
fn decoder(table: &[u8]) -> Option<Vec<(u8, u8)>> {
    let mut lengths = [0; 256];
    for (pair, byte) in lengths.as_chunks_mut::<2>().0.iter_mut().zip(table) {
        *pair = [byte & 15, byte >> 4];
    }
    let fits = lengths.iter().all(|length| *length <= LONGEST);
    let taken = |length: &u8| ENTRIES >> length;
    let used = || lengths.iter().filter(|length| **length > 0).map(taken).sum::<usize>();
    (fits && used() <= ENTRIES).then_some(())?;
    let mut decoder = vec![(0, 0); ENTRIES];
    let codes = codes(&lengths);
    for byte in (0..=u8::MAX).filter(|byte| lengths[usize::from(*byte)] > 0) {
        let (code, length) = (codes[usize::from(byte)], lengths[usize::from(byte)]);
        decoder.iter_mut().skip(usize::from(code)).step_by(1 << length).for_each(|entry| *entry = (byte, length));
    }
    Some(decoder)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Sums of a few bytes of chance crowd around their middle.
    fn crowded(length: usize, terms: u64, step: u64) -> Vec<u8> {
        let mut state = 5_u64;
        let mut chance = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        (0..length).map(|_| ((0..terms).map(|_| chance() % step).sum::<u64>()) as u8).collect()
    }

    #[test]
    fn what_is_compressed_is_smaller_and_comes_back() {
        let length = 100_001;
        let mut halves = crowded(length, 1, 256);
        halves.iter_mut().skip(1).step_by(2).zip(crowded(length, 6, 5)).for_each(|(byte, crowd)| *byte = crowd);
        // What was not seen for long has a long code.
        let mut rare = vec![3; length];
        (0..40).for_each(|at| rare[1 << (at % 16)] = at as u8);
        let steep: Vec<u8> = (0..length).map(|at| at.trailing_zeros() as u8).collect();
        for (bytes, parts) in [
            (crowded(length, 4, 8), 65),
            (crowded(length, 1, 170), 94),
            (halves, 78),
            (rare, 14),
            (vec![9; length], 14),
            (steep, 30),
            (vec![0; 700], 60),
        ] {
            let mut compressed = vec![1, 2];
            assert!(compress(&bytes, &mut compressed));
            assert!(100 * compressed.len() < parts * bytes.len(), "{} bytes of {}", compressed.len(), bytes.len());
            let mut piece = vec![0; bytes.len()];
            assert!(decompress(&compressed[2..], &mut piece).is_some() && piece == bytes);
            for length in [0, 1, bytes.len() - 40, bytes.len() + 40] {
                assert!(decompress(&compressed[2..], &mut vec![0; length]).is_none(), "{length} of {}", bytes.len());
            }
        }
        for bytes in [Vec::new(), vec![7], vec![0; 200], crowded(length, 1, 256), crowded(length, 1, 220)] {
            let mut compressed = Vec::new();
            assert!(!compress(&bytes, &mut compressed) && compressed.is_empty(), "{} bytes", bytes.len());
        }
    }

    proptest! {
        #[test]
        fn any_bytes(mut bytes in vec(any::<u8>(), 0..700), kinds in 0u8..16, length in 0usize..3000) {
            // Tables of short codes are likelier to be ones.
            bytes.iter_mut().take(2 * TABLE).for_each(|byte| *byte &= (0x33 & kinds) | (kinds << 4));
            let _ = decompress(&bytes, &mut vec![0; length]);
        }

        #[test]
        fn any_piece(bytes in vec(0u8..9, 0..3000)) {
            let mut compressed = Vec::new();
            let mut piece = vec![0; bytes.len()];
            if compress(&bytes, &mut compressed) {
                prop_assert!(decompress(&compressed, &mut piece).is_some() && piece == bytes);
            }
        }
    }
}
