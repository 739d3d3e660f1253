//! A tensor of a model: name, format, shape, bytes.

use std::hint::black_box;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use cascadia_kernels::{Dtype, Layout};

use crate::file_bytes::FileBytes;
use crate::made::Made;
use crate::{MemoryAdvice, WeightsError};

/// One named array of numbers, as a model file holds it or put together from what it holds.
#[derive(Clone, Debug)]
pub struct Tensor {
    name: String,
    dtype: Dtype,
    layout: Layout,
    shape: Box<[u64]>,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    Stored(TensorBytes),
    Made(Arc<Made>),
    /// No bytes: another shard of the model has them.
    Elsewhere(TensorBytes),
}

impl Tensor {
    /// The caller has checked that `bytes` is exactly as long as `dtype` and `shape` say.
    pub(crate) fn new(name: String, dtype: Dtype, shape: Box<[u64]>, bytes: TensorBytes) -> Tensor {
        Tensor { name, dtype, layout: Layout::Rows, shape, content: Content::Stored(bytes) }
    }

    /// The same with its bytes in another order.
    pub(crate) fn laid_out(self, layout: Layout) -> Tensor {
        Tensor { layout, ..self }
    }

    /// A tensor whose bytes are made when they are asked for.
    pub(crate) fn made(name: String, dtype: Dtype, shape: Box<[u64]>, made: Made) -> Tensor {
        Tensor { name, dtype, layout: Layout::Rows, shape, content: Content::Made(Arc::new(made)) }
    }

    /// A tensor of another shard; `file` is the one that mentions it.
    pub(crate) fn elsewhere(name: String, dtype: Dtype, shape: Box<[u64]>, file: &Arc<FileBytes>) -> Tensor {
        let nothing = TensorBytes { source: Arc::clone(file), range: 0..0 };
        Tensor { name, dtype, layout: Layout::Rows, shape, content: Content::Elsewhere(nothing) }
    }

    /// Whether another shard of the model has its numbers: it has a format and a shape, but no bytes.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self.content, Content::Elsewhere(_))
    }

    /// Its name, as files of its kind have it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How its numbers are stored.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// In which order its bytes lie.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Dimensions, outermost first: `[rows, columns]` for a matrix. Empty for a scalar.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Its bytes, which stay valid for as long as the returned value lives.
    ///
    /// A tensor that the file stores in parts is put together first; that takes time and memory, and happens again
    /// once nobody holds the bytes any more.
    pub fn bytes(&self) -> TensorBytes {
        match &self.content {
            Content::Stored(bytes) | Content::Elsewhere(bytes) => bytes.clone(),
            Content::Made(made) => made.bytes(),
        }
    }

    /// Length of its bytes.
    pub fn byte_len(&self) -> u64 {
        match &self.content {
            Content::Stored(bytes) | Content::Elsewhere(bytes) => bytes.range.len() as u64,
            Content::Made(made) => made.byte_len,
        }
    }

    /// The file that holds it, or most of what it is made from.
    pub fn file(&self) -> &Path {
        match &self.content {
            Content::Stored(bytes) | Content::Elsewhere(bytes) => bytes.source.path(),
            Content::Made(made) => &made.path,
        }
    }

    /// Where it starts in its file; made tensors are nowhere.
    pub(crate) fn start(&self) -> usize {
        match &self.content {
            Content::Stored(bytes) => bytes.range.start,
            Content::Made(_) | Content::Elsewhere(_) => 0,
        }
    }

    /// Its bytes, if a file holds them as they are.
    pub fn stored_bytes(&self) -> Option<&TensorBytes> {
        match &self.content {
            Content::Stored(bytes) => Some(bytes),
            Content::Made(_) | Content::Elsewhere(_) => None,
        }
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

    /// A view of all there is.
    pub(crate) fn whole(source: &Arc<FileBytes>) -> TensorBytes {
        TensorBytes { source: Arc::clone(source), range: 0..source.bytes().len() }
    }

    /// The file that holds them.
    pub(crate) fn file(&self) -> &Path {
        self.source.path()
    }

    /// These bytes and those of `next` as one range, when the latter follow in the same file.
    pub(crate) fn joined(&self, next: &TensorBytes) -> Option<TensorBytes> {
        /// More than any format's padding between tensors, less than any tensor worth skipping.
        const GAP: usize = 4096;
        let gap = next.range.start.checked_sub(self.range.end)?;
        let same = Arc::ptr_eq(&self.source, &next.source) && gap <= GAP;
        same.then(|| TensorBytes { source: Arc::clone(&self.source), range: self.range.start..next.range.end })
    }

    /// Whether they and those of `other` have some in common.
    pub fn overlaps(&self, other: &TensorBytes) -> bool {
        let meet = self.range.start < other.range.end && other.range.start < self.range.end;
        meet && Arc::ptr_eq(&self.source, &other.source)
    }

    /// Tells the system how these bytes will be read.
    pub fn advise(&self, advice: MemoryAdvice) -> Result<(), WeightsError> {
        self.source.advise(self.range.clone(), advice)
    }

    /// Brings the bytes into memory, from front to back, and returns when they are there.
    ///
    /// Touching a byte per page is what measured best: the system then reads ahead as it does for any file, in large
    /// pieces that it can map at once, where asking for the range beforehand made it read in small ones.
    pub fn fetch(&self) {
        const PAGE: usize = 4096;
        self.as_ref().iter().step_by(PAGE).for_each(|byte| {
            black_box(*byte);
        });
    }
}

impl AsRef<[u8]> for TensorBytes {
    fn as_ref(&self) -> &[u8] {
        &self.source.bytes()[self.range.clone()]
    }
}
