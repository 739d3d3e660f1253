//! Streams the rows of one tensor from one number format to another.

use std::sync::Mutex;

use cascadia_kernels::quantize::{QuantizeError as NumbersError, quantize};
use cascadia_kernels::{Dtype, Pool, decode_row};
use cascadia_weights::gguf::write::TensorSink;

use crate::QuantizeError;
use crate::importance::TensorImportance;

/// Bytes of output that are made before they are written.
const PIECE_BYTES: usize = 8 << 20;

/// What one thread needs for a row.
#[derive(Clone, Default)]
struct Scratch {
    values: Vec<f32>,
}

/// The rows to convert and what to.
pub(crate) struct RowJob<'a> {
    /// For messages.
    pub(crate) name: &'a str,
    pub(crate) stored: &'a [u8],
    pub(crate) stored_dtype: Dtype,
    pub(crate) columns: usize,
    pub(crate) dtype: Dtype,
    pub(crate) importance: Option<TensorImportance<'a>>,
    pub(crate) change: Option<RowChange<'a>>,
}

/// What is done to the numbers of a row, by its number, before they are written.
pub(crate) type RowChange<'a> = Box<dyn Fn(usize, &mut [f32]) + Sync + 'a>;

/// Writes every row of the job; `written` is called with how many numbers each piece had. Memory stays at a few pieces however
/// large the tensor is.
pub(crate) fn write_rows(
    job: &RowJob<'_>,
    pool: &Pool,
    sink: &mut TensorSink<'_>,
    mut written: impl FnMut(u64),
) -> Result<(), QuantizeError> {
    let row_out = row_bytes(job.dtype, job);
    let rows = job.stored.len() / row_bytes(job.stored_dtype, job);
    let rows_at_once = (PIECE_BYTES / row_out).clamp(1, rows.max(1));
    let mut scratch = vec![Scratch::default(); pool.threads()];
    let mut piece = vec![0u8; rows_at_once * row_out];
    for first in (0..rows).step_by(rows_at_once) {
        let count = rows_at_once.min(rows - first);
        let out = &mut piece[..count * row_out];
        let failure: Mutex<Option<NumbersError>> = Mutex::new(None);
        pool.chunks_with(out, row_out, &mut scratch, |_, index, out, scratch| {
            scratch.values.resize(job.columns, 0.0);
            if let Err(error) = convert_row(job, first + index, &mut scratch.values, out) {
                *failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(error);
            }
        });
        if let Some(source) = failure.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            return Err(QuantizeError::Numbers { tensor: job.name.to_owned(), source });
        }
        sink.write(out)?;
        written((count * job.columns) as u64);
    }
    Ok(())
}

fn convert_row(job: &RowJob<'_>, number: usize, values: &mut [f32], out: &mut [u8]) -> Result<(), NumbersError> {
    let row_in = row_bytes(job.stored_dtype, job);
    let row = &job.stored[number * row_in..(number + 1) * row_in];
    if job.stored_dtype == job.dtype && job.change.is_none() {
        out.copy_from_slice(row);
        return Ok(());
    }
    decode_row(job.stored_dtype, row, values);
    if let Some(change) = &job.change {
        change(number, values);
    }
    let importance = job.importance.map(|importance| importance.of_row(number));
    quantize(job.dtype, values, importance, out)
}

/// The writer and the reader have checked that rows are whole blocks.
fn row_bytes(dtype: Dtype, job: &RowJob<'_>) -> usize {
    let bytes = dtype.row_bytes(job.columns as u64).expect("rows of whole blocks");
    usize::try_from(bytes).expect("a row of a mapped file").max(1)
}
