//! A weight matrix as it lies in its file, ready to multiply.

use std::ops::Range;
use std::sync::Arc;

use crate::activations::{ActivationForm, Activations};
use crate::blocks::SUPER_BLOCK;
use crate::ops::{Ops, WeightRows};
use crate::scalar::decode_row;
use crate::{Dtype, Pool};

/// Bytes that outlive whoever reads them, usually a range of a mapped file.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Weight rows that one task multiplies: enough to hide the cost of claiming it, few enough to balance the threads.
const ROWS_PER_TASK: usize = 32;

/// Rows and columns of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub columns: usize,
}

/// Bytes that cannot be a matrix of the shape they claim.
#[derive(Debug, thiserror::Error)]
#[error("{bytes} bytes cannot hold {rows} × {columns} numbers of {dtype}")]
pub struct MatrixError {
    /// The storage format.
    pub dtype: Dtype,
    /// Rows asked for.
    pub rows: usize,
    /// Columns asked for.
    pub columns: usize,
    /// Bytes at hand.
    pub bytes: usize,
}

/// A weight matrix: `shape.rows` outputs of `shape.columns` inputs each.
#[derive(Clone)]
pub struct Matrix {
    bytes: SharedBytes,
    first_row: usize,
    row_bytes: usize,
    dtype: Dtype,
    shape: Shape,
}

impl Matrix {
    /// Wraps the bytes of a whole tensor.
    pub fn new(bytes: SharedBytes, dtype: Dtype, shape: Shape) -> Result<Matrix, MatrixError> {
        let length = (*bytes).as_ref().len();
        let row_bytes = dtype.row_bytes(shape.columns as u64).filter(|&bytes| bytes > 0);
        let total = row_bytes.and_then(|bytes| bytes.checked_mul(shape.rows as u64));
        match (row_bytes, total) {
            (Some(row_bytes), Some(total)) if total == length as u64 && total > 0 => {
                Ok(Matrix { bytes, first_row: 0, row_bytes: row_bytes as usize, dtype, shape })
            }
            _ => Err(MatrixError { dtype, rows: shape.rows, columns: shape.columns, bytes: length }),
        }
    }

    /// Some of the rows, as a matrix of their own over the same bytes.
    pub fn rows(&self, rows: Range<usize>) -> Matrix {
        assert!(rows.start < rows.end && rows.end <= self.shape.rows, "rows {rows:?} of {}", self.shape.rows);
        let shape = Shape { rows: rows.len(), ..self.shape };
        Matrix { first_row: self.first_row + rows.start, shape, ..self.clone() }
    }

    /// Outputs and inputs.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Storage format.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The form of activations it multiplies with.
    pub fn activation_form(&self) -> ActivationForm {
        match self.dtype.block_elements() {
            1 => ActivationForm::Float,
            SUPER_BLOCK => ActivationForm::Blocks256,
            _ => ActivationForm::Blocks32,
        }
    }

    /// Decodes one row to floats, as an embedding lookup does.
    pub fn decode_row(&self, row: usize, out: &mut [f32]) {
        decode_row(self.dtype, self.weights(row..row + 1).bytes, out);
    }

    /// out = x × selfᵀ, for every row of `x`; `out` is row-major with `shape.rows` columns.
    pub fn multiply(&self, x: &mut Activations, out: &mut [f32], ops: &Ops, pool: &Pool) {
        let form = self.activation_form();
        x.prepare(form, ops, pool);
        let x = &*x;
        assert_eq!(x.float().length(), self.shape.columns, "activations as wide as the matrix");
        assert_eq!(x.float().count() * self.shape.rows, out.len(), "room for every output");
        pool.tiles(out, self.shape.rows, ROWS_PER_TASK, |mut tile| {
            let weights = self.weights(tile.columns());
            match form {
                ActivationForm::Float => ops.multiply_float(self.dtype, weights, x.float(), &mut tile),
                ActivationForm::Blocks32 => ops.multiply_blocks32(self.dtype, weights, x.blocks32(), &mut tile),
                ActivationForm::Blocks256 => ops.multiply_blocks256(self.dtype, weights, x.blocks256(), &mut tile),
            }
        });
    }

    fn weights(&self, rows: Range<usize>) -> WeightRows<'_> {
        let at = |row: usize| (self.first_row + row) * self.row_bytes;
        WeightRows { bytes: &(*self.bytes).as_ref()[at(rows.start)..at(rows.end)], row_bytes: self.row_bytes }
    }
}
