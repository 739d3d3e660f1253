//! The GGUF container, versions 2 and 3, little-endian.

mod cursor;
pub mod ggml_type;
pub(crate) mod read;
mod read_value;
pub mod shard;
pub(crate) mod split;
pub mod write;
mod write_value;

use std::path::Path;
use std::sync::Arc;

pub use split::PartName;

use crate::WeightsError;
use crate::file_bytes::FileBytes;

/// The first four bytes of every file.
pub(crate) const MAGIC: &[u8; 4] = b"GGUF";

/// Where the tensors start and how they are spaced, unless `general.alignment` says otherwise.
const DEFAULT_ALIGNMENT: u64 = 32;

/// The same where rows are interleaved: every load of a kernel is then a whole cache line.
const INTERLEAVED_ALIGNMENT: u64 = 64;

/// The key that overrides [`DEFAULT_ALIGNMENT`].
const ALIGNMENT_KEY: &str = "general.alignment";

/// Most dimensions a tensor may have.
const MAX_DIMENSIONS: usize = 4;

/// Reads the header of one GGUF file, whether or not its other parts and its tensors are there.
pub fn check_header(path: &Path) -> Result<(), WeightsError> {
    read::read(&Arc::new(FileBytes::open(path)?)).map(drop)
}

/// Type numbers of metadata values.
mod value_type {
    pub(super) const U8: u32 = 0;
    pub(super) const I8: u32 = 1;
    pub(super) const U16: u32 = 2;
    pub(super) const I16: u32 = 3;
    pub(super) const U32: u32 = 4;
    pub(super) const I32: u32 = 5;
    pub(super) const F32: u32 = 6;
    pub(super) const BOOL: u32 = 7;
    pub(super) const STRING: u32 = 8;
    pub(super) const ARRAY: u32 = 9;
    pub(super) const U64: u32 = 10;
    pub(super) const I64: u32 = 11;
    pub(super) const F64: u32 = 12;
}
