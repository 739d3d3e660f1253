//! Which rows of a step have which adapter, and what those add to what the base makes of the rows.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cascadia_kernels::{
    ActivationPrecision, Activations, Groups, Matrix, Shape, add_groups, multiply_beside_groups, multiply_groups,
};

use super::low_rank::LowRank;
use super::{Adapter, TargetKey};
use crate::StepPlan;
use crate::plan::RowPlaces;
use crate::projection::RowGroups;
use crate::step::Step;

/// The adapters of a step.
pub(crate) struct AdapterRows {
    /// Each of them once.
    adapters: Vec<Arc<Adapter>>,
    /// Of every row, the number of its adapter.
    of_rows: Vec<Option<usize>>,
    scratch: Mutex<Scratch>,
}

/// A matrix, or some of its outputs, as adapters know it.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    /// Its tensor.
    pub(crate) key: TargetKey,
    /// Which of the outputs of that: the first, and how many.
    pub(crate) outputs: (usize, usize),
}

/// Buffers of updates, which grow to what the largest step needs.
struct Scratch {
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
}

/// Up to so many rows, the updates of a step are computed along with the base's product.
const FEW_ROWS: usize = 64;

/// Whether updates are in the output already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Adding {
    Done,
    Left,
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

impl AdapterRows {
    /// No adapters, for steps with activations of this precision on so many threads.
    pub(crate) fn new(precision: ActivationPrecision, threads: usize) -> AdapterRows {
        let room = || Activations::with_capacity(1, 1).with_precision(precision, threads);
        let scratch = Scratch {
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
        };
        AdapterRows { adapters: Vec::new(), of_rows: Vec::new(), scratch: Mutex::new(scratch) }
    }

    /// Finds the adapters of rows that have found their places.
    pub(crate) fn fill(&mut self, plan: &StepPlan, places: &RowPlaces) {
        self.adapters.clear();
        self.of_rows.clear();
        if plan.steps.iter().all(|step| step.adapter.is_none()) {
            return;
        }
        for &sequence in &places.sequences {
            let adapter = plan.steps[sequence as usize].adapter.as_ref();
            let number = adapter.map(|adapter| self.number(adapter));
            self.of_rows.push(number);
        }
    }

    /// The step is over: adapters that nobody else uses may leave memory.
    pub(crate) fn release(&mut self) {
        if !self.adapters.is_empty() {
            self.adapters.clear();
            let scratch = self.scratch.get_mut().unwrap_or_else(PoisonError::into_inner);
            scratch.pieces.clear();
            scratch.downs.clear();
            scratch.ups.clear();
        }
    }

    fn number(&mut self, adapter: &Arc<Adapter>) -> usize {
        let known = self.adapters.iter().position(|other| Arc::ptr_eq(other, adapter));
        known.unwrap_or_else(|| {
            self.adapters.push(Arc::clone(adapter));
            self.adapters.len() - 1
        })
    }

    /// out = x × matrixᵀ with the updates of the rows of `x` whose adapters change the matrix.
    pub(crate) fn multiply(
        &self,
        (matrix, target): (&Matrix, Target),
        x: &mut Activations,
        out: &mut [f32],
        step: &Step<'_>,
    ) {
        if self.adapters.is_empty() {
            return matrix.multiply(x, out, (step.ops, step.pool, step.readings.of(matrix)));
        }
        let mut scratch = self.scratch();
        scratch.clear();
        for (number, adapter) in self.adapters.iter().enumerate() {
            if let Some(update) = adapter.update(target.key, 0) {
                let own = |(row, of_row): (usize, &Option<usize>)| (*of_row == Some(number)).then_some(row);
                scratch.add(update, target, self.of_rows.iter().enumerate().filter_map(own));
            }
        }
        if !scratch.run_beside(matrix, x, out, step) {
            matrix.multiply(x, out, (step.ops, step.pool, step.readings.of(matrix)));
            scratch.run(x, out, step);
        }
    }

    /// out += the updates of rows that take one of several matrices each.
    pub(crate) fn apply_groups(
        &self,
        target: Target,
        groups: RowGroups<'_>,
        (x, out): (&mut Activations, &mut [f32]),
        step: &Step<'_>,
    ) {
        if self.adapters.is_empty() {
            return;
        }
        let mut scratch = self.scratch();
        scratch.clear();
        for (group, &member) in groups.members.iter().enumerate() {
            let rows = groups.starts[group]..groups.starts[group + 1];
            for (number, adapter) in self.adapters.iter().enumerate() {
                if let Some(update) = adapter.update(target.key, member) {
                    let own = |row: &usize| self.of_rows[groups.sources[*row]] == Some(number);
                    scratch.add(update, target, rows.clone().filter(own));
                }
            }
        }
        scratch.run(x, out, step);
    }

    /// Whether an adapter of the step changes the bias of a projection.
    pub(crate) fn change_bias(&self, target: Target) -> bool {
        self.adapters.iter().any(|adapter| adapter.bias_of(target.key).is_some())
    }

    /// The bias of a row, where its adapter changes that.
    pub(crate) fn bias(&self, target: Target, row: usize) -> Option<&[f32]> {
        let adapter = &self.adapters[(*self.of_rows.get(row)?)?];
        adapter.bias_of(target.key).map(|bias| &bias[target.outputs()])
    }

    /// out += the updates of the embeddings of the step's tokens.
    pub(crate) fn embed(&self, out: &mut [f32], step: &Step<'_>) {
        let width = out.len() / self.of_rows.len().max(1);
        for (number, adapter) in self.adapters.iter().enumerate() {
            let Some(update) = &adapter.embedding else { continue };
            let scratch = &mut *self.scratch();
            scratch.rows.clear();
            let own = |(row, of_row): (usize, &Option<usize>)| (*of_row == Some(number)).then_some(row);
            scratch.rows.extend(self.of_rows.iter().enumerate().filter_map(own));
            let rank = update.up.shape().columns;
            let between = scratch.between.reset(scratch.rows.len(), rank);
            for (row, out) in scratch.rows.iter().zip(between.chunks_exact_mut(rank)) {
                update.tokens.decode_row(step.plan.tokens[*row] as usize, out);
            }
            scratch.added.resize(scratch.rows.len() * width, 0.0);
            let with = (step.ops, step.pool, step.readings.of(&update.up));
            update.up.multiply(&mut scratch.between, &mut scratch.added, with);
            for (row, added) in scratch.rows.iter().zip(scratch.added.chunks_exact(width)) {
                step.ops.rows.add(added, &mut out[row * width..(row + 1) * width]);
            }
        }
    }

    fn scratch(&self) -> MutexGuard<'_, Scratch> {
        // A step that panicked left nothing that a later one reads.
        self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Target {
    fn outputs(&self) -> Range<usize> {
        self.outputs.0..self.outputs.0 + self.outputs.1
    }
}

impl Scratch {
    fn clear(&mut self) {
        self.pieces.clear();
        self.rows.clear();
    }

    /// Notes that some rows get an update.
    fn add(&mut self, update: &LowRank, target: Target, rows: impl Iterator<Item = usize>) {
        let start = self.rows.len();
        self.rows.extend(rows);
        let (rows, outputs) = (start..self.rows.len(), target.outputs());
        if rows.is_empty() {
            return;
        }
        let scales = update.scales.clone().map(|scales| (scales, outputs.start));
        self.pieces.push(Piece { down: update.down.clone(), up: update.up_rows(outputs), scales, rows });
    }

    /// Computes what was noted: updates of one shape together, so that threads share them.
    fn run(&mut self, x: &mut Activations, out: &mut [f32], step: &Step<'_>) {
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.sort_by_key(|piece| piece.down.shape().rows);
        for alike in pieces.chunk_by(Piece::is_alike) {
            self.arrange(alike, x.rows());
            self.run_alike(alike, x, out, step);
        }
        self.pieces = pieces;
    }

    /// out = x × matrixᵀ, with the first half of the updates in the same job. `false` if nothing was done: where rows are many,
    /// or not all of them have updates of one shape in the order of the rows.
    fn run_beside(&mut self, matrix: &Matrix, x: &mut Activations, out: &mut [f32], step: &Step<'_>) -> bool {
        let pieces = std::mem::take(&mut self.pieces);
        let alike = pieces.windows(2).all(|pair| pair[0].is_alike(&pair[1]));
        let fits = alike && !pieces.is_empty() && x.rows() <= FEW_ROWS && {
            self.arrange(&pieces, x.rows());
            self.in_order()
        };
        if fits {
            let Scratch { starts, members, downs, ups, between, .. } = self;
            let groups = Groups { members: &*members, starts: &*starts };
            let small = between.reset(x.rows(), pieces[0].down.shape().rows);
            let down = (downs.as_slice(), groups, step.readings.of(&downs[0]));
            let own = (matrix, step.readings.of(matrix));
            multiply_beside_groups(own, down, x, (out, small), (step.ops, step.pool));
            add_groups(ups, groups, between, out, (step.ops, step.pool, step.readings.of(&ups[0])));
            self.finish(&pieces, Adding::Done, out, step);
        }
        self.pieces = pieces;
        fits
    }

    /// Puts the rows of updates of one shape side by side.
    fn arrange(&mut self, pieces: &[Piece], count: usize) {
        let Scratch { rows, places, starts, members, downs, ups, .. } = self;
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
        let Scratch { places, starts, members, downs, ups, input, between, added, .. } = self;
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
