//! A weight matrix as it lies in its file, ready to multiply.

use std::ops::Range;
use std::sync::Arc;

use crate::Dtype;
use crate::activations::{ActivationForm, Activations};
use crate::blocks::SUPER_BLOCK;
use crate::layout::{GROUP_ROWS, Layout, for_each_block, interleave};
use crate::ops::{InterleavedRows, Ops, WeightRows};
use crate::pool::{Pool, TileMut, TiledRows};
use crate::reading::{ReadAhead, Reading};
use crate::readings::MatrixKind;
use crate::runs::{FourRuns, Tiling};
use crate::scalar::decode_row;

/// Bytes that outlive whoever reads them, usually a range of a mapped file.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Neighbouring weight rows that one task multiplies: enough to hide the cost of claiming it, few enough to balance the
/// threads. Whole groups of interleaved rows.
const ROWS_PER_TASK: usize = 32;
/// Of rows with fewer numbers than this, a task multiplies more.
const SHORT_ROW: usize = 1024;
/// The same where there are at least [`MANY`] columns.
pub(crate) const MOST_ROWS_PER_TASK: usize = 256;
/// Up to this many columns, reading a weight takes longer than multiplying it, and kernels take rows in any order.
const FEW: usize = 3;
/// Columns from which the work on a weight outweighs the cost of reading it.
const MANY: usize = 64;

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
    (ops, pool, reading): (&Ops, &Pool, Reading),
) {
    let job = GroupJob::prepare((matrices, groups), (x, out), (ops, pool, reading));
    x.with_summands(pool.threads(), |x, summands| {
        pool.tiles(out, (job.tiling(x, pool), groups.starts), summands, |group, mut tile, summands| {
            job.multiply(group, x, (&mut tile, summands), ops);
        });
    });
}

/// out = x × matrixᵀ, and in the same job `beside` = x × matricesᵀ in groups, as [`multiply_groups`] has them.
pub fn multiply_beside_groups(
    (matrix, reading): (&Matrix, Reading),
    (matrices, groups, groups_reading): (&[Matrix], Groups<'_>, Reading),
    x: &mut Activations,
    (out, beside): (&mut [f32], &mut [f32]),
    (ops, pool): (&Ops, &Pool),
) {
    let whole = [0, x.rows()];
    let one = Groups { members: &[0], starts: &whole };
    let job = GroupJob::prepare((std::slice::from_ref(matrix), one), (x, out), (ops, pool, reading));
    let small = GroupJob::prepare((matrices, groups), (x, beside), (ops, pool, groups_reading));
    x.with_summands(pool.threads(), |x, summands| {
        // What is beside comes first: the last tasks of a job are small, so that threads end together.
        let outputs = [
            TiledRows { tiling: small.tiling(x, pool), out: beside, starts: groups.starts },
            TiledRows { tiling: job.tiling(x, pool), out, starts: &whole },
        ];
        pool.tiles_of_all(outputs, summands, |which, group, mut tile, summands| {
            [&small, &job][which].multiply(group, x, (&mut tile, summands), ops);
        });
    });
}

/// out += x × matrixᵀ, like [`multiply_groups`], for a few rows of x.
pub fn add_groups(
    matrices: &[Matrix],
    groups: Groups<'_>,
    x: &mut Activations,
    out: &mut [f32],
    (ops, pool, reading): (&Ops, &Pool, Reading),
) {
    let job = GroupJob::prepare((matrices, groups), (x, out), (ops, pool, reading));
    x.with_summands(pool.threads(), |x, summands| {
        pool.tiles(out, (job.few_columns(pool), groups.starts), summands, |group, mut tile, summands| {
            let (matrix, first) = (job.matrix(group), groups.starts[group]);
            let terms = x.terms(matrix.activation_form());
            summands.resize(summands.len().max(terms * tile.columns().most()), 0.0);
            tile.add_products(terms, summands, |rows, products| {
                let rows = terms * (first + rows.start)..terms * (first + rows.end);
                matrix.multiply_tile(x, rows, products, (ops, reading.ahead));
            });
        });
    });
}

/// Groups of rows that are about to be multiplied.
struct GroupJob<'a> {
    matrices: &'a [Matrix],
    groups: Groups<'a>,
    shape: Shape,
    reading: Reading,
}

impl<'a> GroupJob<'a> {
    /// Brings the activations into the forms that the matrices multiply with, and checks that everything fits.
    fn prepare(
        (matrices, groups): (&'a [Matrix], Groups<'a>),
        (x, out): (&mut Activations, &[f32]),
        (ops, pool, reading): (&Ops, &Pool, Reading),
    ) -> GroupJob<'a> {
        let Groups { members, starts } = groups;
        let shape = matrices[members[0]].shape;
        let job = GroupJob { matrices, groups, shape, reading };
        (0..members.len()).for_each(|group| x.prepare(job.matrix(group).activation_form(), ops, pool));
        assert!((0..members.len()).all(|group| job.matrix(group).shape == shape), "matrices of one shape");
        assert_eq!(x.float().length(), shape.columns, "activations as wide as the matrix");
        assert_eq!(starts.len(), members.len() + 1, "a first row for every group, and an end");
        assert_eq!(x.float().count() * shape.rows, out.len(), "room for every output");
        job
    }

    fn matrix(&self, group: usize) -> &'a Matrix {
        &self.matrices[self.groups.members[group]]
    }

    /// How weight rows are divided into tasks.
    fn tiling(&self, x: &Activations, pool: &Pool) -> Tiling {
        let Groups { members, starts } = self.groups;
        let terms = (0..members.len()).map(|group| x.terms(self.matrix(group).activation_form())).max().unwrap_or(1);
        let most_columns = terms * starts.windows(2).map(|group| group[1] - group[0]).max().unwrap_or(0);
        let rows = self.shape.rows;
        match terms * x.float().count() / members.len() {
            ..=FEW if most_columns <= FEW && self.reading.far && self.matrix(0).layout == Layout::Rows => {
                Tiling::streams(rows, pool.threads().div_ceil(members.len()))
            }
            ..MANY => self.few_columns(pool),
            // Rows that share a column of x while it is in a near cache.
            MANY.. => {
                let share = (rows / (4 * pool.threads())).clamp(ROWS_PER_TASK, MOST_ROWS_PER_TASK);
                Tiling::neighbours(rows, share.next_multiple_of(ROWS_PER_TASK))
            }
        }
    }

    /// Tasks of neighbouring rows: more of short ones, as long as there is a task for every thread.
    fn few_columns(&self, pool: &Pool) -> Tiling {
        let Shape { rows, columns } = self.shape;
        let usual = ROWS_PER_TASK * (SHORT_ROW / columns).max(1);
        let share = (rows * self.groups.members.len()).div_ceil(pool.threads()).next_multiple_of(ROWS_PER_TASK);
        Tiling::neighbours(rows, usual.min(share))
    }

    /// Computes a tile of one group.
    fn multiply(&self, group: usize, x: &Activations, (tile, summands): (&mut TileMut<'_>, &mut Vec<f32>), ops: &Ops) {
        let (matrix, first, with) = (self.matrix(group), self.groups.starts[group], (ops, self.reading.ahead));
        match x.terms(matrix.activation_form()) {
            1 => matrix.multiply_tile(x, first..self.groups.starts[group + 1], tile, with),
            terms => tile.add_pairs(summands, |rows, products| {
                let rows = terms * (first + rows.start)..terms * (first + rows.end);
                matrix.multiply_tile(x, rows, products, with);
            }),
        }
    }
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
    fn multiply_tile(
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
