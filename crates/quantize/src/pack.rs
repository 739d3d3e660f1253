//! Re-arranges a GGUF file so that kernels load it without turning it first: the same numbers in another order.

use std::path::Path;

use cascadia_kernels::{Layout, Pool, interleave};
use cascadia_weights::gguf::write::{Outline, TensorEntry, TensorSink, write_laid_out};
use cascadia_weights::{FileKind, ModelFiles, Tensor};

use crate::{QuantizeError, QuantizeProgress, QuantizeSummary};

/// Rows that are interleaved with each other.
const GROUP_ROWS: usize = 16;
/// Bytes of output that are made before they are written.
const PIECE_BYTES: usize = 8 << 20;

/// What to re-arrange.
pub struct PackJob<'a> {
    /// The model, a GGUF file.
    pub files: &'a ModelFiles,
    /// The file to write.
    pub out: &'a Path,
    /// The threads to work with.
    pub pool: &'a Pool,
}

/// Writes the model with its matrices interleaved. The file appears under its name only when it is complete.
pub fn pack(
    job: &PackJob<'_>,
    mut progress: impl FnMut(QuantizeProgress<'_>),
) -> Result<QuantizeSummary, QuantizeError> {
    refuse_packed(job.files)?;
    if job.files.kind() != FileKind::Gguf {
        return Err(refusal(job.files, "no GGUF file", "name a number format with --type as well"));
    }
    let tensors = job.files.tensors();
    // The result is one file, whatever the source was.
    let whole = job.files.metadata().entries().iter().filter(|(key, _)| !key.starts_with("split."));
    let metadata: Vec<_> = whole.cloned().collect();
    let entry = |tensor: &Tensor| TensorEntry {
        name: tensor.name().to_owned(),
        dtype: tensor.dtype(),
        shape: tensor.shape().to_vec(),
    };
    let entries: Vec<TensorEntry> = tensors.iter().map(entry).collect();
    let looked_up = job.files.tensor("output.weight").map(|_| "token_embd.weight");
    let layout = |entry: &TensorEntry| layout(entry, looked_up);
    let total = tensors.iter().map(Tensor::byte_len).sum();
    let (mut done, mut bytes_after) = (0, 0);
    let outline = Outline { metadata: &metadata, tensors: &entries };
    write_laid_out(job.out, outline, layout, |index, sink| {
        let (tensor, length) = (&tensors[index], sink.left());
        match layout(&entries[index]) {
            Layout::Rows => sink.write(tensor.bytes().as_ref())?,
            Layout::Interleaved => write_groups(tensor, job.pool, sink)?,
        }
        done += tensor.byte_len();
        bytes_after += length;
        progress(QuantizeProgress { tensor: tensor.name(), done, total });
        Ok::<(), QuantizeError>(())
    })?;
    // A source that shrank while it was read would have been packed as zeros.
    job.files.check_intact()?;
    let numbers = |tensor: &Tensor| tensor.shape().iter().product::<u64>();
    let parameters = tensors.iter().map(numbers).sum();
    Ok(QuantizeSummary { tensors: tensors.len(), parameters, bytes_before: total, bytes_after })
}

/// An error when the model is packed already: its rows are no longer one after the other.
pub(crate) fn refuse_packed(files: &ModelFiles) -> Result<(), QuantizeError> {
    match files.tensors().iter().any(|tensor| tensor.layout() != Layout::Rows) {
        true => Err(refusal(files, "packed already", "start from the file it was made from")),
        false => Ok(()),
    }
}

fn refusal(files: &ModelFiles, value: &str, advice: &'static str) -> QuantizeError {
    QuantizeError::Convert { path: files.path().to_owned(), what: "it".to_owned(), value: value.to_owned(), advice }
}

/// Matrices are interleaved where their format allows it. One that is only looked up by row stays as it is.
fn layout(entry: &TensorEntry, looked_up: Option<&str>) -> Layout {
    let group = GROUP_ROWS as u64;
    let matrix = match entry.shape[..] {
        [rows, _] => rows >= group,
        // Every expert starts with a group of its own.
        [_, rows, _] => rows.is_multiple_of(group),
        _ => false,
    };
    match matrix && Layout::Interleaved.holds(entry.dtype) && looked_up != Some(&entry.name) {
        true => Layout::Interleaved,
        false => Layout::Rows,
    }
}

fn write_groups(tensor: &Tensor, pool: &Pool, sink: &mut TensorSink<'_>) -> Result<(), QuantizeError> {
    let bytes = tensor.bytes();
    let columns = *tensor.shape().last().expect("a matrix has columns");
    let row_bytes = tensor.dtype().row_bytes(columns).expect("the reader has checked it") as usize;
    let group_bytes = Layout::Interleaved.matrix_bytes(tensor.dtype(), 1, columns).expect("the writer has checked it");
    let group_bytes = group_bytes as usize;
    let mut piece = vec![0; (PIECE_BYTES / group_bytes).max(1) * group_bytes];
    for source in bytes.as_ref().chunks(piece.len() / group_bytes * GROUP_ROWS * row_bytes) {
        let groups = source.len().div_ceil(GROUP_ROWS * row_bytes);
        let out = &mut piece[..groups * group_bytes];
        pool.chunks(out, group_bytes, |_, group, out| {
            let start = group * GROUP_ROWS * row_bytes;
            let end = source.len().min(start + GROUP_ROWS * row_bytes);
            interleave(tensor.dtype(), row_bytes, &source[start..end], out);
        });
        sink.write(out)?;
    }
    Ok(())
}
