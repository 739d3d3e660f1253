//! SHA-256 of files.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use ring::digest::{Context, SHA256};

/// Bytes that are read at a time.
pub(crate) const PIECE: usize = 256 * 1024;

/// The SHA-256 of a file in hexadecimal; tells after every piece how many bytes were read.
pub(crate) fn sha256_of(path: &Path, progress: impl FnMut(u64)) -> io::Result<String> {
    let mut digest = Context::new(&SHA256);
    digest_rest(&mut File::open(path)?, &mut digest, progress)?;
    Ok(hexadecimal(digest))
}

/// Reads `content` to its end, and says how long it was.
pub(crate) fn digest_rest(
    content: &mut impl Read,
    digest: &mut Context,
    mut progress: impl FnMut(u64),
) -> io::Result<u64> {
    let (mut piece, mut length) = (vec![0; PIECE], 0);
    loop {
        let count = content.read(&mut piece)?;
        if count == 0 {
            return Ok(length);
        }
        digest.update(&piece[..count]);
        length += count as u64;
        progress(length);
    }
}

pub(crate) fn hexadecimal(digest: Context) -> String {
    digest.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a text is a SHA-256 in hexadecimal.
pub(crate) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
