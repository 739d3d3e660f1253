//! The file format of the resume log: records that are either complete or ignored.
//!
//! A record is a count, that many tokens, and a checksum over them, the stream's id and the number of tokens before, all
//! little-endian. A record that is incomplete, belongs to another stream or is out of order ends the file.

/// Bytes of a checksum.
const SUM_BYTES: usize = 8;

/// What a file holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) tokens: Vec<u32>,
    /// Bytes of the records they are in.
    pub(super) bytes: u64,
}

/// A record with tokens of a stream that follow `before` others.
pub(super) fn encode(stream: &str, before: usize, tokens: &[u32]) -> Vec<u8> {
    let mut record = (tokens.len() as u32).to_le_bytes().to_vec();
    record.extend(tokens.iter().flat_map(|token| token.to_le_bytes()));
    let sum = checksum(stream, before, &record[4..]);
    record.extend_from_slice(&sum);
    record
}

/// The tokens of all records before the first that is not valid.
pub(super) fn decode(stream: &str, bytes: &[u8]) -> Found {
    let mut found = Found::default();
    let mut rest = bytes;
    while let Some((tokens, after)) = record(stream, found.tokens.len(), rest) {
        found.tokens.extend(tokens.chunks_exact(4).map(|token| u32::from_le_bytes([0, 1, 2, 3].map(|at| token[at]))));
        rest = after;
    }
    found.bytes = (bytes.len() - rest.len()) as u64;
    found
}

/// The bytes of the tokens of the first record, and what follows it.
fn record<'a>(stream: &str, before: usize, bytes: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (count, rest) = bytes.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*count)).ok()?.checked_mul(4)?;
    let (tokens, rest) = rest.split_at_checked(length)?;
    let (sum, after) = rest.split_first_chunk::<SUM_BYTES>()?;
    (length > 0 && *sum == checksum(stream, before, tokens)).then_some((tokens, after))
}

fn checksum(stream: &str, before: usize, tokens: &[u8]) -> [u8; SUM_BYTES] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(stream.as_bytes()).update(&(before as u64).to_le_bytes()).update(tokens);
    let mut sum = [0; SUM_BYTES];
    hasher.finalize_xof().fill(&mut sum);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_ends_with_its_last_complete_record() {
        let parts: [&[u32]; 3] = [&[7], &[u32::MAX, 0, 9], &[1, 2]];
        let (mut file, mut ends, mut tokens) = (Vec::new(), vec![0], Vec::new());
        for part in parts {
            file.extend(encode("one", tokens.len(), part));
            tokens.extend_from_slice(part);
            ends.push(file.len());
        }
        assert_eq!(decode("one", &file), Found { tokens: tokens.clone(), bytes: file.len() as u64 });
        assert_eq!(decode("other", &file), Found::default());
        assert_eq!(decode("one", &file[ends[1]..]), Found::default(), "its beginning is missing");
        for cut in 0..file.len() {
            let whole = ends.iter().rposition(|end| *end <= cut).unwrap();
            let expected = parts[..whole].concat();
            assert_eq!(decode("one", &file[..cut]), Found { tokens: expected, bytes: ends[whole] as u64 }, "{cut}");
            let mut flipped = file.clone();
            flipped[cut] ^= 1;
            assert_eq!(decode("one", &flipped).bytes, ends[whole] as u64, "byte {cut} is another");
        }
        assert_eq!(decode("one", &[0; 64]), Found::default(), "an empty record is not valid");
        assert_eq!(decode("one", &[255; 64]), Found::default());
    }
}
