//! Products of activations with weight matrices, several of them in one job of the pool.

use crate::activations::Activations;
use crate::layout::Layout;
use crate::matrix::{Matrix, Shape};
use crate::ops::Ops;
use crate::pool::{Pool, TileMut, TiledRows};
use crate::reading::Reading;
use crate::runs::Tiling;

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

/// Rows of activations in groups, each of which is multiplied with one of several matrices.
#[derive(Clone, Copy)]
pub struct Groups<'a> {
    /// The matrix of every group.
    pub members: &'a [usize],
    /// The first row of every group, and after the last how many there are.
    pub starts: &'a [usize],
}

/// A product: every group of rows is multiplied with its own matrix. All matrices have one shape.
pub struct Product<'a> {
    /// The matrices.
    pub matrices: &'a [Matrix],
    /// Which rows meet which of them.
    pub groups: Groups<'a>,
    /// How they are read.
    pub reading: Reading,
    /// The result, a row for each row of activations.
    pub out: &'a mut [f32],
}

/// out = x × matrixᵀ, every group of rows with its own matrix. The groups are one job, so that threads share them however many
/// rows each has.
pub fn multiply_groups(
    matrices: &[Matrix],
    groups: Groups<'_>,
    x: &mut Activations,
    out: &mut [f32],
    (ops, pool, reading): (&Ops, &Pool, Reading),
) {
    multiply_all([Product { matrices, groups, reading, out }], [Product::nothing()], x, (ops, pool));
}

/// out = x × matrixᵀ for all products, in one job: one after the other, then the small ones beside them.
pub fn multiply_all<const N: usize>(
    products: [Product<'_>; N],
    beside: [Product<'_>; N],
    x: &mut Activations,
    (ops, pool): (&Ops, &Pool),
) {
    let products = [products, beside];
    let jobs = products.each_ref().map(|all| all.each_ref().map(|product| GroupJob::prepare(product, x, (ops, pool))));
    let jobs = jobs.as_flattened();
    x.with_summands(pool.threads(), |x, summands| {
        let mut tilings = jobs.iter().map(|job| job.tiling(x, pool));
        let tiled = products.map(|all| all.map(|product| product.tiled(&mut tilings, pool)));
        let tiled = tiled.each_ref().map(<[TiledRows<'_>; N]>::each_ref);
        let tiled = tiled.as_flattened();
        pool.tiles(tiled, summands, |place, mut tile, summands| {
            jobs[place.matrix].multiply(place.group, x, (&mut tile, summands), ops);
        });
    });
}

/// out += x × matrixᵀ for all products, each of a few rows of its own, in one job. `summands` is scratch of every thread.
pub fn add_all<const N: usize>(
    mut products: [(Product<'_>, &mut Activations); N],
    summands: &mut Vec<Vec<f32>>,
    (ops, pool): (&Ops, &Pool),
) {
    let jobs = products.each_mut().map(|(product, x)| GroupJob::prepare(product, x, (ops, pool)));
    let mut tilings = jobs.iter().map(|job| job.few_columns(pool));
    let products = products.map(|(product, x)| (product.tiled(&mut tilings, pool), &*x));
    let tiled = products.each_ref().map(|(tiled, _)| tiled);
    summands.resize_with(pool.threads().max(summands.len()), Vec::new);
    pool.tiles(&tiled, summands, |place, mut tile, summands| {
        let (job, x) = (&jobs[place.matrix], products[place.matrix].1);
        let (matrix, first) = (job.matrix(place.group), job.groups.starts[place.group]);
        let terms = x.terms(matrix.activation_form());
        summands.resize(summands.len().max(terms * tile.columns().most()), 0.0);
        tile.add_products(terms, summands, |rows, products| {
            let rows = terms * (first + rows.start)..terms * (first + rows.end);
            matrix.multiply_tile(x, rows, products, (ops, job.reading.ahead));
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
    fn prepare(product: &Product<'a>, x: &mut Activations, (ops, pool): (&Ops, &Pool)) -> GroupJob<'a> {
        let Product { matrices, groups: Groups { members, starts }, reading, .. } = *product;
        let shape = members.first().map_or(Shape { rows: 0, columns: 0 }, |&first| matrices[first].shape());
        let job = GroupJob { matrices, groups: product.groups, shape, reading };
        (0..members.len()).for_each(|group| x.prepare(job.matrix(group).activation_form(), ops, pool));
        assert!((0..members.len()).all(|group| job.matrix(group).shape() == shape), "matrices of one shape");
        assert!(members.is_empty() || x.float().length() == shape.columns, "activations as wide as the matrix");
        assert_eq!(starts.len(), members.len() + 1, "a first row for every group, and an end");
        assert!(members.is_empty() || x.rows() * shape.rows == product.out.len(), "room for every output");
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
        match terms * x.rows() / members.len().max(1) {
            ..=FEW if most_columns <= FEW && self.reads_far() => {
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

    /// Whether a thread's streams are quarters of all that it reads.
    fn reads_far(&self) -> bool {
        let rows = |&first: &usize| self.matrices[first].kind().layout == Layout::Rows;
        self.reading.far && self.groups.members.first().is_some_and(rows)
    }

    /// Tasks of neighbouring rows: more of short ones, as long as there is a task for every thread.
    fn few_columns(&self, pool: &Pool) -> Tiling {
        let Shape { rows, columns } = self.shape;
        let usual = ROWS_PER_TASK * (SHORT_ROW / columns.max(1)).max(1);
        let share = (rows * self.groups.members.len()).div_ceil(pool.threads()).next_multiple_of(ROWS_PER_TASK);
        Tiling::neighbours(rows, usual.min(share.max(ROWS_PER_TASK)))
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

impl<'a> Product<'a> {
    /// Nothing to compute.
    pub fn nothing() -> Product<'a> {
        Product {
            matrices: &[],
            groups: Groups { members: &[], starts: &[0] },
            reading: Reading::DEFAULT,
            out: &mut [],
        }
    }

    /// The result, divided as the next tiling says.
    fn tiled(self, tilings: &mut impl Iterator<Item = Tiling>, pool: &Pool) -> TiledRows<'a> {
        pool.tiled(self.out, tilings.next().expect("a tiling for every product"), self.groups.starts)
    }
}
