//! A weight matrix as it lies in its file, ready to multiply.

use std::ops::Range;
use std::sync::Arc;

use crate::Dtype;
use crate::activations::{ActivationForm, Activations};
use crate::blocks::SUPER_BLOCK;
use crate::layout::{GROUP_ROWS, Layout, for_each_block, interleave};
use crate::ops::{InterleavedRows, Ops, WeightRows};
use crate::pool::{Pool, TileMut};
use crate::product::{Groups, multiply_groups};
use crate::reading::{ReadAhead, Reading};
use crate::readings::MatrixKind;
use crate::runs::FourRuns;
use crate::scalar::decode_row;

/// Bytes that outlive whoever reads them, usually a range of a mapped file.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Rows and columns of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub columns: usize,
}

/// Bytes that cannot be a matrix of the shape they claim.
#[derive(Debug, thiserror::Error)]
#[error(
    "{bytes} bytes cannot hold {rows} × {columns} numbers of {dtype} in {layout} layout, whose rows are whole blocks of {}",
    dtype.block_elements()
)]
pub struct MatrixError {
    /// The storage format.
    pub dtype: Dtype,
    /// The order of the bytes.
    pub layout: Layout,
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
    /// Bytes of a row, or of a group of interleaved rows.
    stride: usize,
    dtype: Dtype,
    layout: Layout,
    shape: Shape,
}

impl Matrix {
    /// Wraps the bytes of a whole tensor whose rows lie one after the other.
    pub fn new(bytes: SharedBytes, dtype: Dtype, shape: Shape) -> Result<Matrix, MatrixError> {
        Matrix::with_layout(bytes, dtype, Layout::Rows, shape)
    }

    /// Wraps the bytes of a whole tensor.
    pub fn with_layout(bytes: SharedBytes, dtype: Dtype, layout: Layout, shape: Shape) -> Result<Matrix, MatrixError> {
        let length = (*bytes).as_ref().len();
        let size = |rows: usize| layout.matrix_bytes(dtype, rows as u64, shape.columns as u64);
        match (size(1), size(shape.rows)) {
            (Some(stride), Some(total)) if total == length as u64 && total > 0 => {
                Ok(Matrix { bytes, first_row: 0, stride: stride as usize, dtype, layout, shape })
            }
            _ => Err(MatrixError { dtype, layout, rows: shape.rows, columns: shape.columns, bytes: length }),
        }
    }

    /// Some of the rows, as a matrix of their own over the same bytes; over a copy where they start inside a group of
    /// interleaved rows.
    pub fn rows(&self, rows: Range<usize>) -> Matrix {
        assert!(rows.start < rows.end && rows.end <= self.shape.rows, "rows {rows:?} of {}", self.shape.rows);
        let (first_row, shape) = (self.first_row + rows.start, Shape { rows: rows.len(), ..self.shape });
        if self.layout == Layout::Rows || first_row.is_multiple_of(GROUP_ROWS) {
            return Matrix { first_row, shape, ..self.clone() };
        }
        let mut bytes = Vec::new();
        rows.for_each(|row| self.for_each_block(row, |_, block| bytes.extend_from_slice(block)));
        Matrix::new(Arc::new(bytes), self.dtype, shape).expect("rows of a valid matrix")
    }

    /// The same with rows interleaved, over a copy; as it is where the format has no such layout.
    pub fn interleaved(self) -> Matrix {
        if self.layout == Layout::Interleaved || !Layout::Interleaved.holds(self.dtype) {
            return self;
        }
        let Shape { rows, columns } = self.shape;
        let size = |rows: usize| Layout::Interleaved.matrix_bytes(self.dtype, rows as u64, columns as u64);
        let size = |rows: usize| size(rows).expect("rows of whole blocks") as usize;
        let mut bytes = vec![0; size(rows)];
        for (group, out) in bytes.chunks_exact_mut(size(1)).enumerate() {
            let (first, end) = (group * GROUP_ROWS, rows.min((group + 1) * GROUP_ROWS));
            interleave(self.dtype, self.stride, self.slice(self.first_row + first..self.first_row + end), out);
        }
        let (dtype, layout) = (self.dtype, Layout::Interleaved);
        Matrix::with_layout(Arc::new(bytes), dtype, layout, self.shape).expect("bytes of this layout")
    }

    /// Outputs and inputs.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Storage format.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Bytes that a multiplication reads.
    pub fn bytes(&self) -> u64 {
        let Shape { rows, columns } = self.shape;
        self.layout.matrix_bytes(self.dtype, rows as u64, columns as u64).unwrap_or(0)
    }

    /// What a multiplication reads.
    pub fn as_bytes(&self) -> &[u8] {
        match self.layout {
            Layout::Rows => self.slice(self.first_row..self.first_row + self.shape.rows),
            Layout::Interleaved => self.groups(0..self.shape.rows),
        }
    }

    /// Multiplications and additions for `rows` rows of activations.
    pub fn operations(&self, rows: usize) -> u64 {
        2 * rows as u64 * self.shape.rows as u64 * self.shape.columns as u64
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
        let numbers = self.dtype.block_elements();
        match self.layout {
            Layout::Rows => decode_row(self.dtype, self.slice(self.first_row + row..self.first_row + row + 1), out),
            Layout::Interleaved => self.for_each_block(row, |at, block| {
                decode_row(self.dtype, block, &mut out[at * numbers..(at + 1) * numbers]);
            }),
        }
    }

    /// What its speed depends on.
    pub fn kind(&self) -> MatrixKind {
        MatrixKind { dtype: self.dtype, layout: self.layout, shape: self.shape }
    }

    /// out = x × selfᵀ, for every row of `x`; `out` is row-major with `shape.rows` columns.
    pub fn multiply(&self, x: &mut Activations, out: &mut [f32], with: (&Ops, &Pool, Reading)) {
        let rows = x.float().count();
        multiply_groups(std::slice::from_ref(self), Groups { members: &[0], starts: &[0, rows] }, x, out, with);
    }

    /// The tile's columns of `x × selfᵀ`, for some rows of `x` in the form that the matrix multiplies with.
    pub(crate) fn multiply_tile(
        &self,
        x: &Activations,
        rows: Range<usize>,
        tile: &mut TileMut<'_>,
        (ops, ahead): (&Ops, ReadAhead),
    ) {
        let (dtype, outputs) = (self.dtype, tile.columns());
        match (self.layout, self.activation_form()) {
            (Layout::Interleaved, ActivationForm::Blocks32) => {
                ops.products.multiply_interleaved32(
                    dtype,
                    self.interleaved_rows(outputs, ahead),
                    x.blocks32().part(rows),
                    tile,
                );
            }
            (Layout::Interleaved, _) => {
                ops.products.multiply_interleaved256(
                    dtype,
                    self.interleaved_rows(outputs, ahead),
                    x.blocks256().part(rows),
                    tile,
                );
            }
            (Layout::Rows, ActivationForm::Float) => {
                ops.products.multiply_float(dtype, self.weight_rows(outputs, ahead), x.float().part(rows), tile);
            }
            (Layout::Rows, ActivationForm::Blocks32) => {
                ops.products.multiply_blocks32(dtype, self.weight_rows(outputs, ahead), x.blocks32().part(rows), tile);
            }
            (Layout::Rows, ActivationForm::Blocks256) => {
                ops.products.multiply_blocks256(
                    dtype,
                    self.weight_rows(outputs, ahead),
                    x.blocks256().part(rows),
                    tile,
                );
            }
        }
    }

    fn weight_rows(&self, runs: FourRuns, ahead: ReadAhead) -> WeightRows<'_> {
        let bytes = self.slice(self.first_row..self.first_row + self.shape.rows);
        WeightRows { bytes, row_bytes: self.stride, runs, ahead }
    }

    /// The groups that hold the rows of a task, which start where a group does.
    fn interleaved_rows(&self, runs: FourRuns, ahead: ReadAhead) -> InterleavedRows<'_> {
        let rows = runs.as_range().expect("tasks of interleaved rows are neighbours");
        InterleavedRows { bytes: self.groups(rows), group_bytes: self.stride, ahead }
    }

    /// The groups that hold some rows.
    fn groups(&self, rows: Range<usize>) -> &[u8] {
        let (start, end) = (self.first_row + rows.start, self.first_row + rows.end);
        self.slice(start / GROUP_ROWS..end.div_ceil(GROUP_ROWS))
    }

    fn slice(&self, parts: Range<usize>) -> &[u8] {
        &(*self.bytes).as_ref()[parts.start * self.stride..parts.end * self.stride]
    }

    /// Calls `visit` with every block of an interleaved row.
    fn for_each_block(&self, row: usize, visit: impl FnMut(usize, &[u8])) {
        let blocks = self.shape.columns / self.dtype.block_elements();
        let group = self.groups(row..row + 1);
        for_each_block(self.dtype, group, blocks, (self.first_row + row) % GROUP_ROWS, visit);
    }
}
