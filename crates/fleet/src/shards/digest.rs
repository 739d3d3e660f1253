//! The name of a content: its BLAKE3 digest.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::FleetError;

/// What a blob is called. There is no other way to name one, so no name can be a path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest(pub [u8; 32]);

/// Bytes that are read at a time.
const PIECE: usize = 1 << 20;

impl Digest {
    /// The digest of some bytes.
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(*blake3::hash(bytes).as_bytes())
    }

    /// The digest of a file, and its length.
    pub fn of_file(path: &Path) -> Result<(Digest, u64), FleetError> {
        Digest::of_file_in_pieces(path, |_| true).map(|found| found.expect("nothing stops it"))
    }

    /// The same, with `goes_on` told of every piece, and nothing if it says no.
    pub(crate) fn of_file_in_pieces(
        path: &Path,
        mut goes_on: impl FnMut(usize) -> bool,
    ) -> Result<Option<(Digest, u64)>, FleetError> {
        let mut file = File::open(path).map_err(FleetError::io("open", path))?;
        let (mut hasher, mut piece, mut length) = (blake3::Hasher::new(), vec![0; PIECE], 0);
        loop {
            let count = file.read(&mut piece).map_err(FleetError::io("read", path))?;
            if count == 0 {
                return Ok(Some((Digest(*hasher.finalize().as_bytes()), length)));
            }
            hasher.update(&piece[..count]);
            length += count as u64;
            if !goes_on(count) {
                return Ok(None);
            }
        }
    }

    /// The first characters, enough for a message.
    pub fn short(&self) -> String {
        self.to_string()[..12].to_owned()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = String;

    fn from_str(text: &str) -> Result<Digest, String> {
        from_hex(text).map(Digest).ok_or_else(|| format!("`{text}` is no digest of 64 hexadecimal digits"))
    }
}

/// Bytes as small hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes that were written so, if there are exactly so many.
pub(crate) fn from_hex<const LENGTH: usize>(text: &str) -> Option<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    let digits = text.len() == 2 * LENGTH && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    for (index, byte) in bytes.iter_mut().enumerate().take_while(|_| digits) {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    digits.then_some(bytes)
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Digest, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_64_digits_and_nothing_else() {
        let digest = Digest::of(b"abc");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        let upper = digest.to_string().to_uppercase();
        for wrong in ["", "../../etc/passwd", &"é".repeat(32), &upper, &"0".repeat(63), &"g".repeat(64)] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
    }
}
