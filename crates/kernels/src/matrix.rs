//! A weight matrix as it lies in its file, ready to multiply.

use std::ops::Range;
use std::sync::Arc;

use crate::activations::{ActivationForm, Activations};
use crate::blocks::SUPER_BLOCK;
use crate::ops::{Ops, WeightRows};
use crate::scalar::decode_row;
use crate::{Dtype, Pool, TileMut};

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
#[error("{bytes} bytes cannot hold {rows} × {columns} numbers of {dtype}, whose rows are whole blocks of {}", dtype.block_elements())]
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

/// Rows of activations in groups, each of which is multiplied with one of several matrices.
#[derive(Clone, Copy)]
pub struct Groups<'a> {
    /// The matrix of every group.
    pub members: &'a [usize],
    /// The first row of every group, and after the last how many there are.
    pub starts: &'a [usize],
}

/// out = x × matrixᵀ, every group of rows with its own matrix. All matrices have one shape. The groups are one job, so
/// that threads share them however many rows each has.
pub fn multiply_groups(
    matrices: &[Matrix],
    groups: Groups<'_>,
    x: &mut Activations,
    out: &mut [f32],
    (ops, pool): (&Ops, &Pool),
) {
    let matrix = |group: usize| &matrices[groups.members[group]];
    (0..groups.members.len()).for_each(|group| x.prepare(matrix(group).activation_form(), ops, pool));
    let (x, shape) = (&*x, matrix(0).shape);
    assert!((0..groups.members.len()).all(|group| matrix(group).shape == shape), "matrices of one shape");
    assert_eq!(x.float().length(), shape.columns, "activations as wide as the matrix");
    assert_eq!(groups.starts.len(), groups.members.len() + 1, "a first row for every group, and an end");
    assert_eq!(x.float().count() * shape.rows, out.len(), "room for every output");
    pool.group_tiles(out, (shape.rows, ROWS_PER_TASK), groups.starts, |group, mut tile| {
        matrix(group).multiply_tile(x, groups.starts[group]..groups.starts[group + 1], &mut tile, ops);
    });
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
        let rows = x.float().count();
        multiply_groups(std::slice::from_ref(self), Groups { members: &[0], starts: &[0, rows] }, x, out, (ops, pool));
    }

    /// The tile's columns of `x × selfᵀ`, for some rows of `x`.
    fn multiply_tile(&self, x: &Activations, rows: Range<usize>, tile: &mut TileMut<'_>, ops: &Ops) {
        let weights = self.weights(tile.columns());
        match self.activation_form() {
            ActivationForm::Float => ops.multiply_float(self.dtype, weights, x.float().part(rows), tile),
            ActivationForm::Blocks32 => ops.multiply_blocks32(self.dtype, weights, x.blocks32().part(rows), tile),
            ActivationForm::Blocks256 => ops.multiply_blocks256(self.dtype, weights, x.blocks256().part(rows), tile),
        }
    }

    fn weights(&self, rows: Range<usize>) -> WeightRows<'_> {
        let at = |row: usize| (self.first_row + row) * self.row_bytes;
        WeightRows { bytes: &(*self.bytes).as_ref()[at(rows.start)..at(rows.end)], row_bytes: self.row_bytes }
    }
}
