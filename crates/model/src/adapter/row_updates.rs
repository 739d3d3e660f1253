//! The updates of one matrix in a step: which rows get which of them, and how they are computed.

use std::ops::Range;
use std::sync::Arc;

use cascadia_kernels::{ActivationPrecision, Activations, Groups, Matrix, Product, Shape, multiply_groups};

use super::low_rank::LowRank;
use super::rows::Target;
use crate::step::Step;

/// Up to so many rows, the updates of a step are computed along with the base's product.
const FEW_ROWS: usize = 64;

/// Updates of one matrix, in buffers that grow to what the largest step needs.
pub(super) struct RowUpdates {
    pieces: Vec<Piece>,
    /// Rows of all pieces.
    rows: Vec<usize>,
    /// Where rows are among those of the pieces that are computed together.
    places: Vec<Option<(usize, usize)>>,
    starts: Vec<usize>,
    members: Vec<usize>,
    downs: Vec<Matrix>,
    ups: Vec<Matrix>,
    input: Activations,
    between: Activations,
    added: Vec<f32>,
    /// Whether they are computed along with the base's product.
    along: bool,
}

/// An update, and the rows that get it.
struct Piece {
    down: Matrix,
    up: Matrix,
    /// What outputs are multiplied with, and where those of these outputs begin.
    scales: Option<(Arc<[f32]>, usize)>,
    /// Among those of all pieces.
    rows: Range<usize>,
}

/// Whether updates are in the output already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Adding {
    Done,
    Left,
}

impl RowUpdates {
    /// None, for activations of this precision on so many threads.
    pub(super) fn new(precision: ActivationPrecision, threads: usize) -> RowUpdates {
        let room = || Activations::with_capacity(1, 1).with_precision(precision, threads);
        RowUpdates {
            pieces: Vec::new(),
            rows: Vec::new(),
            places: Vec::new(),
            starts: Vec::new(),
            members: Vec::new(),
            downs: Vec::new(),
            ups: Vec::new(),
            input: room(),
            between: room(),
            added: Vec::new(),
            along: false,
        }
    }

    /// Begins with another matrix.
    pub(super) fn clear(&mut self) {
        self.pieces.clear();
        self.rows.clear();
    }

    /// Keeps no weights any more.
    pub(super) fn release(&mut self) {
        self.pieces.clear();
        self.downs.clear();
        self.ups.clear();
    }

    /// Notes that some rows get an update.
    pub(super) fn add(&mut self, update: &LowRank, target: Target, rows: impl Iterator<Item = usize>) {
        let start = self.rows.len();
        self.rows.extend(rows);
        let (rows, outputs) = (start..self.rows.len(), target.outputs());
        if rows.is_empty() {
            return;
        }
        let scales = update.magnitudes.as_ref().map(|magnitudes| (Arc::clone(magnitudes.scales()), outputs.start));
        self.pieces.push(Piece { down: update.down.clone(), up: update.up_rows(outputs), scales, rows });
    }

    /// Everything was noted, for a step of so many rows. Updates are computed along with the base's product unless rows are many,
    /// or not all of them have updates of one shape in the order of the rows.
    pub(super) fn arrange(&mut self, rows: usize) {
        let pieces = std::mem::take(&mut self.pieces);
        let alike = pieces.windows(2).all(|pair| pair[0].is_alike(&pair[1]));
        self.along = alike && !pieces.is_empty() && rows <= FEW_ROWS && {
            self.place(&pieces, rows);
            self.in_order()
        };
        self.pieces = pieces;
    }

    /// The first half of what is computed along with the base's product.
    pub(super) fn first_half(&mut self, step: &Step<'_>) -> Product<'_> {
        if !self.along {
            return Product::nothing();
        }
        let RowUpdates { rows, starts, members, downs, between, .. } = self;
        let out = between.reset(rows.len(), downs[0].shape().rows);
        let (groups, reading) = (Groups { members, starts }, step.readings.of(&downs[0]));
        Product { matrices: downs, groups, reading, out }
    }

    /// The second half, which is added to what the base has made, and what it is a product of.
    pub(super) fn second_half<'a>(
        &'a mut self,
        out: &'a mut [f32],
        step: &Step<'_>,
    ) -> (Product<'a>, &'a mut Activations) {
        let RowUpdates { starts, members, ups, between, along, .. } = self;
        let product = match along {
            false => Product::nothing(),
            true => {
                let (groups, reading) = (Groups { members, starts }, step.readings.of(&ups[0]));
                Product { matrices: ups, groups, reading, out }
            }
        };
        (product, between)
    }

    /// Does what is left to do after both halves.
    pub(super) fn end(&mut self, x: &mut Activations, out: &mut [f32], step: &Step<'_>) {
        match self.along {
            true => self.finish(&self.pieces, Adding::Done, out, step),
            false => self.run(x, out, step),
        }
    }

    /// Computes what was noted: updates of one shape together, so that threads share them.
    pub(super) fn run(&mut self, x: &mut Activations, out: &mut [f32], step: &Step<'_>) {
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.sort_by_key(|piece| piece.down.shape().rows);
        for alike in pieces.chunk_by(Piece::is_alike) {
            self.place(alike, x.rows());
            self.run_alike(alike, x, out, step);
        }
        self.pieces = pieces;
    }

    /// Puts the rows of updates of one shape side by side.
    fn place(&mut self, pieces: &[Piece], count: usize) {
        let RowUpdates { rows, places, starts, members, downs, ups, .. } = self;
        places.clear();
        places.resize(count, None);
        starts.clear();
        members.clear();
        downs.clear();
        ups.clear();
        let mut next = 0;
        for (number, piece) in pieces.iter().enumerate() {
            starts.push(next);
            members.push(number);
            downs.push(piece.down.clone());
            ups.push(piece.up.clone());
            for &row in &rows[piece.rows.clone()] {
                places[row] = Some((next, number));
                next += 1;
            }
        }
        starts.push(next);
    }

    /// Whether all rows have an update, and are in order already.
    fn in_order(&self) -> bool {
        self.places.iter().enumerate().all(|(row, place)| place.is_some_and(|(at, _)| at == row))
    }

    /// Computes updates of one shape that were arranged.
    fn run_alike(&mut self, pieces: &[Piece], x: &mut Activations, out: &mut [f32], step: &Step<'_>) {
        let in_order = self.in_order();
        let RowUpdates { places, starts, members, downs, ups, input, between, added, .. } = self;
        let count = pieces.iter().map(|piece| piece.rows.len()).sum::<usize>();
        let Shape { rows: rank, columns: inputs } = pieces[0].down.shape();
        let outputs = pieces[0].up.shape().rows;
        let groups = Groups { members: &*members, starts: &*starts };
        let small = between.reset(count, rank);
        let [down_with, up_with] = [&downs[0], &ups[0]].map(|matrix| (step.ops, step.pool, step.readings.of(matrix)));
        if in_order {
            multiply_groups(downs, groups, x, small, down_with);
        } else {
            let source = x.float();
            let gathered = input.reset(count, inputs);
            for (row, place) in places.iter().enumerate() {
                if let Some((at, _)) = place {
                    gathered[at * inputs..(at + 1) * inputs].copy_from_slice(source.row(row));
                }
            }
            multiply_groups(downs, groups, input, small, down_with);
        }
        added.resize(added.len().max(count * outputs), 0.0);
        multiply_groups(ups, groups, between, &mut added[..count * outputs], up_with);
        self.finish(pieces, Adding::Left, out, step);
    }

    /// Adds what is left to be added, and scales rows.
    fn finish(&self, pieces: &[Piece], adding: Adding, out: &mut [f32], step: &Step<'_>) {
        let Piece { down, up, .. } = &pieces[0];
        let (outputs, count) = (up.shape().rows, pieces.iter().map(|piece| piece.rows.len()).sum());
        let bytes = pieces.iter().map(|piece| piece.down.bytes() + piece.up.bytes()).sum();
        step.profile.work(bytes, down.operations(count) + up.operations(count));
        if adding == Adding::Done && pieces.iter().all(|piece| piece.scales.is_none()) {
            return;
        }
        step.pool.chunks(out, outputs, |_, row, out| {
            let Some((at, number)) = self.places[row] else { return };
            if adding == Adding::Left {
                step.ops.rows.add(&self.added[at * outputs..(at + 1) * outputs], out);
            }
            if let Some((scales, first)) = &pieces[number].scales {
                out.iter_mut().zip(&scales[*first..]).for_each(|(out, scale)| *out *= scale);
            }
        });
    }
}

impl Piece {
    /// Whether both can be computed in one job.
    fn is_alike(&self, other: &Piece) -> bool {
        self.down.shape() == other.down.shape() && self.down.dtype() == other.down.dtype()
    }
}
