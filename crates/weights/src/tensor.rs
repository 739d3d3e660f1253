//! A tensor as it lies in its file: name, format, shape, bytes.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use cascadia_kernels::Dtype;

use crate::file_bytes::FileBytes;

/// One named array of numbers inside a model file.
#[derive(Clone, Debug)]
pub struct Tensor {
    name: String,
    dtype: Dtype,
    shape: Box<[u64]>,
    bytes: TensorBytes,
}

impl Tensor {
    /// The caller has checked that `bytes` is exactly as long as `dtype` and `shape` say.
    pub(crate) fn new(name: String, dtype: Dtype, shape: Box<[u64]>, bytes: TensorBytes) -> Tensor {
        Tensor { name, dtype, shape, bytes }
    }

    /// The name the file gives it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How its numbers are stored.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Dimensions, outermost first: `[rows, columns]` for a matrix. Empty for a scalar.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Its bytes, which stay valid for as long as the returned value lives.
    pub fn bytes(&self) -> TensorBytes {
        self.bytes.clone()
    }

    /// Length of its bytes.
    pub fn byte_len(&self) -> u64 {
        self.bytes.range.len() as u64
    }

    /// The file that holds it.
    pub fn file(&self) -> &Path {
        self.bytes.source.path()
    }

    pub(crate) fn start(&self) -> usize {
        self.bytes.range.start
    }
}

/// A shared view of the bytes of one tensor, cheap to clone.
#[derive(Clone, Debug)]
pub struct TensorBytes {
    source: Arc<FileBytes>,
    range: Range<usize>,
}

impl TensorBytes {
    /// A view of `range`; `None` unless it lies inside the file.
    pub(crate) fn new(source: &Arc<FileBytes>, range: Range<usize>) -> Option<TensorBytes> {
        source.bytes().get(range.clone())?;
        Some(TensorBytes { source: Arc::clone(source), range })
    }
}

impl AsRef<[u8]> for TensorBytes {
    fn as_ref(&self) -> &[u8] {
        &self.source.bytes()[self.range.clone()]
    }
}
