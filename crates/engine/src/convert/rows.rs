//! Streams the rows of one tensor from one number format to another.

use std::sync::Mutex;

use cascadia_kernels::quantize::{QuantizeError, quantize};
use cascadia_kernels::{Dtype, Pool, decode_row};
use cascadia_weights::Tensor;
use cascadia_weights::gguf::write::TensorSink;

use crate::EngineError;

/// Bytes of output that are made before they are written.
const PIECE_BYTES: usize = 8 << 20;

/// In which order the rows of a stored matrix are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowOrder {
    /// As they are.
    Same,
    /// The rows are this many heads. Each stores the first halves of its rotated pairs, then the second halves; the
    /// result has the two of a pair side by side.
    PairsTogether {
        /// How many heads the rows form.
        heads: usize,
    },
}

impl RowOrder {
    /// The stored row that becomes row `row` of a result of `rows` rows.
    fn stored(self, row: usize, rows: usize) -> usize {
        match self {
            RowOrder::Same => row,
            RowOrder::PairsTogether { heads } => {
                let head = rows / heads;
                let (start, within) = (row - row % head, row % head);
                start + within / 2 + (within % 2) * (head / 2)
            }
        }
    }
}

/// What one thread needs for a row.
#[derive(Clone, Default)]
struct Scratch {
    values: Vec<f32>,
}

/// The rows to convert and what to.
pub(crate) struct RowJob<'a> {
    pub(crate) tensor: &'a Tensor,
    pub(crate) order: RowOrder,
    pub(crate) columns: usize,
    pub(crate) dtype: Dtype,
}

/// Writes every row of the job; `written` hears how many numbers each piece had. Memory stays at a few pieces however
/// large the tensor is.
pub(crate) fn write_rows(
    job: &RowJob<'_>,
    pool: &Pool,
    sink: &mut TensorSink<'_>,
    mut written: impl FnMut(u64),
) -> Result<(), EngineError> {
    let bytes = job.tensor.bytes();
    let source = bytes.as_ref();
    let row_in = row_bytes(job.tensor.dtype(), job);
    let row_out = row_bytes(job.dtype, job);
    let rows = source.len() / row_in;
    let rows_at_once = (PIECE_BYTES / row_out).clamp(1, rows.max(1));
    let mut scratch = vec![Scratch::default(); pool.threads()];
    let mut piece = vec![0u8; rows_at_once * row_out];
    for first in (0..rows).step_by(rows_at_once) {
        let count = rows_at_once.min(rows - first);
        let out = &mut piece[..count * row_out];
        let failure: Mutex<Option<QuantizeError>> = Mutex::new(None);
        pool.chunks_with(out, row_out, &mut scratch, |index, out, scratch| {
            let stored = job.order.stored(first + index, rows);
            let row = &source[stored * row_in..(stored + 1) * row_in];
            if let Err(error) = convert_row(job, row, out, scratch) {
                *failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(error);
            }
        });
        if let Some(source) = failure.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            return Err(EngineError::Quantize { tensor: job.tensor.name().to_owned(), source });
        }
        sink.write(out)?;
        written((count * job.columns) as u64);
    }
    Ok(())
}

/// Writes computed numbers as F32.
pub(crate) fn write_values(values: &[f32], sink: &mut TensorSink<'_>) -> Result<(), EngineError> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Ok(sink.write(&bytes)?)
}

fn convert_row(job: &RowJob<'_>, row: &[u8], out: &mut [u8], scratch: &mut Scratch) -> Result<(), QuantizeError> {
    if job.tensor.dtype() == job.dtype {
        out.copy_from_slice(row);
        return Ok(());
    }
    scratch.values.resize(job.columns, 0.0);
    decode_row(job.tensor.dtype(), row, &mut scratch.values);
    quantize(job.dtype, &scratch.values, None, out)
}

/// The writer and the reader have checked that rows are whole blocks.
fn row_bytes(dtype: Dtype, job: &RowJob<'_>) -> usize {
    let bytes = dtype.row_bytes(job.columns as u64).expect("rows of whole blocks");
    usize::try_from(bytes).expect("a row of a mapped file").max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_come_together_within_their_head() {
        let order = RowOrder::PairsTogether { heads: 2 };
        let stored: Vec<usize> = (0..12).map(|row| order.stored(row, 12)).collect();
        assert_eq!(stored, [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
        assert_eq!(RowOrder::Same.stored(5, 12), 5);
    }
}
