//! The safetensors container, one file or several with an index.

mod header_scan;
mod index;
mod read;

pub use index::{INDEX_FILE, SINGLE_FILE};
pub(crate) use index::{read_folder, shards_of};
pub(crate) use read::{looks_like_safetensors, read};

use std::sync::Arc;

use ::safetensors::tensor::Dtype as StoredDtype;

use crate::file_bytes::FileBytes;
use crate::tensor::{Tensor, TensorBytes};

/// What a file or a set of shards holds.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// Sorted by position in each file, files in order of their names.
    pub(crate) tensors: Vec<Tensor>,
    /// Tensors that exist but cannot be computed with.
    pub(crate) set_aside: Vec<SetAside>,
    /// The files that hold all of these.
    pub(crate) files: Vec<Arc<FileBytes>>,
}

/// A tensor that is in the file and of no use to us.
#[derive(Debug)]
pub(crate) struct SetAside {
    pub(crate) name: String,
    /// Why, as the end of the sentence "tensor x …".
    pub(crate) reason: String,
    pub(crate) stored: Stored,
}

/// A tensor as a file stores it, whether or not it can be computed with.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) dtype: StoredDtype,
    /// Outermost dimension first.
    pub(crate) shape: Box<[u64]>,
    pub(crate) bytes: TensorBytes,
}
