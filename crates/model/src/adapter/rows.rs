//! Which rows of a step have which adapter, and what those add to what the base makes of the rows.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cascadia_kernels::{ActivationPrecision, Activations, Groups, Matrix, Product, add_all, multiply_all};

use super::row_updates::RowUpdates;
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

/// The most matrices that are multiplied in one job.
const MOST_TOGETHER: usize = 3;

struct Scratch {
    /// Of each matrix of a job.
    updates: [RowUpdates; MOST_TOGETHER],
    /// Per thread, products on their way into outputs.
    summands: Vec<Vec<f32>>,
    /// Rows whose embeddings an adapter changes, and what those are between its matrices.
    rows: Vec<usize>,
    between: Activations,
    added: Vec<f32>,
}

impl AdapterRows {
    /// No adapters, for steps with activations of this precision on so many threads.
    pub(crate) fn new(precision: ActivationPrecision, threads: usize) -> AdapterRows {
        let scratch = Scratch {
            updates: std::array::from_fn(|_| RowUpdates::new(precision, threads)),
            summands: Vec::new(),
            rows: Vec::new(),
            between: Activations::with_capacity(1, 1).with_precision(precision, threads),
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

    /// Every adapter of the step once.
    pub(crate) fn all(&self) -> &[Arc<Adapter>] {
        &self.adapters
    }

    /// The step is over: adapters that nobody else uses may leave memory.
    pub(crate) fn release(&mut self) {
        if !self.adapters.is_empty() {
            self.adapters.clear();
            let scratch = self.scratch.get_mut().unwrap_or_else(PoisonError::into_inner);
            scratch.updates.iter_mut().for_each(RowUpdates::release);
        }
    }

    fn number(&mut self, adapter: &Arc<Adapter>) -> usize {
        let known = self.adapters.iter().position(|other| Arc::ptr_eq(other, adapter));
        known.unwrap_or_else(|| {
            self.adapters.push(Arc::clone(adapter));
            self.adapters.len() - 1
        })
    }

    /// out = x × matrixᵀ for all matrices, with the updates of the rows of `x` whose adapters change them.
    pub(crate) fn multiply_all<const N: usize>(
        &self,
        maps: [(&Matrix, Target); N],
        x: &mut Activations,
        mut outs: [&mut [f32]; N],
        step: &Step<'_>,
    ) {
        let (with, whole) = ((step.ops, step.pool), [0, x.rows()]);
        let mut places = outs.iter_mut();
        let products = maps.map(|(matrix, _)| Product {
            matrices: std::slice::from_ref(matrix),
            groups: Groups { members: &[0], starts: &whole },
            reading: step.readings.of(matrix),
            out: places.next().expect("room for every product"),
        });
        if self.adapters.is_empty() {
            return multiply_all(products, maps.map(|_| Product::nothing()), x, with);
        }
        let Scratch { updates, summands, .. } = &mut *self.scratch();
        let updates: &mut [RowUpdates; N] = updates.first_chunk_mut().expect("no more than there are buffers for");
        for (updates, (_, target)) in updates.iter_mut().zip(maps) {
            updates.clear();
            for (number, adapter) in self.adapters.iter().enumerate() {
                if let Some(update) = adapter.update(target.key, 0) {
                    updates.add(update, target, self.rows_of(number));
                }
            }
            updates.arrange(x.rows());
        }
        multiply_all(products, updates.each_mut().map(|updates| updates.first_half(step)), x, with);
        let mut places = outs.iter_mut();
        let halves = updates.each_mut().map(|updates| {
            let out = places.next().expect("room for every product");
            updates.second_half(out, step)
        });
        add_all(halves, summands, with);
        updates.iter_mut().zip(outs).for_each(|(updates, out)| updates.end(x, out, step));
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
        let updates = &mut self.scratch().updates[0];
        updates.clear();
        for (group, &member) in groups.members.iter().enumerate() {
            let rows = groups.starts[group]..groups.starts[group + 1];
            for (number, adapter) in self.adapters.iter().enumerate() {
                if let Some(update) = adapter.update(target.key, member) {
                    let own = |row: &usize| self.of_rows[groups.sources[*row]] == Some(number);
                    updates.add(update, target, rows.clone().filter(own));
                }
            }
        }
        updates.run(x, out, step);
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
            scratch.rows.extend(self.rows_of(number));
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

    /// The rows that have an adapter.
    fn rows_of(&self, adapter: usize) -> impl Iterator<Item = usize> {
        self.of_rows.iter().enumerate().filter_map(move |(row, of_row)| (*of_row == Some(adapter)).then_some(row))
    }

    fn scratch(&self) -> MutexGuard<'_, Scratch> {
        // A step that panicked left nothing that a later one reads.
        self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Target {
    pub(super) fn outputs(&self) -> Range<usize> {
        self.outputs.0..self.outputs.0 + self.outputs.1
    }
}
