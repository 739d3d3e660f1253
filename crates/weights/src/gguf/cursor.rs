//! Reading little-endian values from untrusted bytes, with errors that name the file and the field.

use std::path::Path;

use crate::WeightsError;

/// A position in the bytes of a file. Every read is checked against the end.
pub(super) struct Cursor<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    position: usize,
    field: String,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(path: &'a Path, bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { path, bytes, position: 0, field: String::new() }
    }

    /// Names what is read from here on, for error messages.
    pub(super) fn begin(&mut self, field: impl Into<String>) {
        self.field = field.into();
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Goes back to an earlier position.
    pub(super) fn rewind(&mut self, position: usize) {
        assert!(position <= self.position);
        self.position = position;
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], WeightsError> {
        let rest = &self.bytes[self.position..];
        let taken = rest.get(..count).ok_or_else(|| {
            self.malformed(format!("needs {count} bytes at offset {} but {} are left", self.position, rest.len()))
        })?;
        self.position += count;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], WeightsError> {
        Ok(self.take(N)?.try_into().expect("take returns what was asked for"))
    }

    pub(super) fn u32(&mut self) -> Result<u32, WeightsError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, WeightsError> {
        self.array().map(u64::from_le_bytes)
    }

    /// A length-prefixed string.
    pub(super) fn string(&mut self) -> Result<&'a [u8], WeightsError> {
        let length = self.count(1)?;
        self.take(length)
    }

    /// A length-prefixed string that has to be UTF-8 and no longer than `limit` bytes.
    pub(super) fn name(&mut self, limit: usize) -> Result<&'a str, WeightsError> {
        let bytes = self.string()?;
        if bytes.len() > limit {
            return Err(self.malformed(format!("the name has {} bytes, more than the {limit} allowed", bytes.len())));
        }
        std::str::from_utf8(bytes).map_err(|_| self.malformed("the name is not UTF-8"))
    }

    /// The number of things that follow, each at least `minimal_size` bytes long: more cannot fit is an error.
    pub(super) fn count(&mut self, minimal_size: usize) -> Result<usize, WeightsError> {
        let count = self.u64()?;
        let left = self.bytes.len() - self.position;
        let most = left / minimal_size;
        match usize::try_from(count) {
            Ok(count) if count <= most => Ok(count),
            _ => Err(self.malformed(format!("announces {count} items but the {left} bytes left hold at most {most}"))),
        }
    }

    pub(super) fn malformed(&self, problem: impl Into<String>) -> WeightsError {
        WeightsError::malformed(self.path, self.field.clone(), problem)
    }

    pub(super) fn unsupported(&self, problem: impl Into<String>) -> WeightsError {
        WeightsError::unsupported(self.path, self.field.clone(), problem)
    }

    pub(super) fn unread_type(&self, name: &str, kind: String) -> WeightsError {
        WeightsError::TensorType { path: self.path.to_owned(), name: name.to_owned(), kind }
    }
}
