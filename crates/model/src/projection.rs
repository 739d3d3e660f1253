//! Linear maps with their biases: the only place where activations meet weights.

use std::sync::Arc;

use cascadia_kernels::{Activations, Groups, Matrix, multiply_groups};

use crate::ActivationStats;
use crate::adapter::{Target, TargetKey};
use crate::step::Step;

/// One linear map of a layer.
pub(crate) struct Projection {
    /// The tensor that holds its weights, by its GGUF name.
    name: Arc<str>,
    /// The tensor that adapters change.
    target: TargetKey,
    /// Where its outputs begin among those of the tensor.
    first_output: usize,
    matrix: Matrix,
    bias: Option<Vec<f32>>,
    /// Which of the tensor's matrices it is, and where the activations are measured, when somebody asked for it.
    stats: Option<(usize, ActivationStats)>,
}

/// Several linear maps of one shape, of which each row takes one: those of experts, or of heads.
pub(crate) struct GroupedProjection {
    name: Arc<str>,
    /// The tensor that adapters change.
    target: TargetKey,
    matrices: Vec<Matrix>,
    biases: Option<Vec<Vec<f32>>>,
    stats: Option<ActivationStats>,
}

/// Rows sorted by the map that they take.
#[derive(Clone, Copy)]
pub(crate) struct RowGroups<'a> {
    /// The maps in use.
    pub(crate) members: &'a [usize],
    /// The first row of each of them, and the number of rows.
    pub(crate) starts: &'a [usize],
    /// Of every row, the row of the step that it came from.
    pub(crate) sources: &'a [usize],
}

impl Projection {
    pub(crate) fn new(name: &str, matrix: Matrix, bias: Option<Vec<f32>>) -> Projection {
        let target = TargetKey::of(name);
        Projection { name: name.into(), target, first_output: 0, matrix, bias, stats: None }
    }

    /// The same, which adapters know by another name.
    pub(crate) fn adapted_as(self, target: &str) -> Projection {
        Projection { target: TargetKey::of(target), ..self }
    }

    /// The same, measuring the activations that it meets.
    pub(crate) fn measured(self, stats: Option<&ActivationStats>) -> Projection {
        self.measured_as(0, stats)
    }

    /// The same, for one of several matrices of a tensor.
    pub(crate) fn measured_as(self, index: usize, stats: Option<&ActivationStats>) -> Projection {
        if let Some(stats) = stats {
            stats.expect(&self.name, index, self.matrix.shape().columns);
        }
        Projection { stats: stats.map(|stats| (index, stats.clone())), ..self }
    }

    /// Outputs per row.
    pub(crate) fn outputs(&self) -> usize {
        self.matrix.shape().rows
    }

    /// Inputs per row.
    pub(crate) fn inputs(&self) -> usize {
        self.matrix.shape().columns
    }

    /// Several maps with so many outputs each, which the file keeps as one. All meet the same activations, so the first
    /// measures for the whole tensor.
    pub(crate) fn split<const N: usize>(self, outputs: [usize; N]) -> [Projection; N] {
        let Projection { name, target, matrix, bias, mut stats, .. } = self;
        let mut start = 0;
        outputs.map(|outputs| {
            let range = start..start + outputs;
            start += outputs;
            Projection {
                name: Arc::clone(&name),
                target,
                first_output: range.start,
                bias: bias.as_ref().map(|bias| bias[range.clone()].to_vec()),
                matrix: matrix.rows(range),
                stats: stats.take(),
            }
        })
    }

    /// out = x × matrixᵀ + bias, with what the adapters of rows change.
    pub(crate) fn apply(&self, x: &mut Activations, out: &mut [f32], step: &Step<'_>) {
        Projection::apply_all([self], x, [out], step);
    }

    /// The same for maps that meet the same activations: they are one job, so that threads wait for each other once.
    pub(crate) fn apply_all<const N: usize>(
        all: [&Projection; N],
        x: &mut Activations,
        mut outs: [&mut [f32]; N],
        step: &Step<'_>,
    ) {
        for projection in all {
            if let Some((index, stats)) = &projection.stats {
                stats.add(&projection.name, &x.float(), |_| *index);
            }
        }
        let maps = all.map(|projection| (&projection.matrix, projection.target()));
        step.adapters.multiply_all(maps, x, outs.each_mut().map(|out| &mut **out), step);
        for (projection, out) in all.into_iter().zip(outs) {
            step.profile.work(projection.matrix.bytes(), projection.matrix.operations(x.rows()));
            projection.add_bias(out, step);
        }
    }

    /// Its matrix as adapters know it.
    fn target(&self) -> Target {
        Target { key: self.target, outputs: (self.first_output, self.outputs()) }
    }

    fn add_bias(&self, out: &mut [f32], step: &Step<'_>) {
        let target = self.target();
        if step.adapters.change_bias(target) {
            step.pool.chunks(out, self.outputs(), |_, row, out| {
                let bias = step.adapters.bias(target, row).or(self.bias.as_deref());
                bias.iter().for_each(|bias| step.ops.rows.add(bias, out));
            });
        } else if let Some(bias) = &self.bias {
            step.pool.chunks(out, bias.len(), |_, _, row| step.ops.rows.add(bias, row));
        }
    }
}

impl GroupedProjection {
    /// How many maps.
    pub(crate) fn count(&self) -> usize {
        self.matrices.len()
    }

    /// The weights of one of them.
    pub(crate) fn bytes_of(&self, member: usize) -> &[u8] {
        self.matrices[member].as_bytes()
    }

    /// Maps with these matrices and biases, measuring the activations that they meet where statistics are wanted.
    pub(crate) fn new(
        name: &str,
        matrices: Vec<Matrix>,
        biases: Option<Vec<Vec<f32>>>,
        stats: Option<&ActivationStats>,
    ) -> GroupedProjection {
        if let Some(stats) = stats {
            let columns = matrices[0].shape().columns;
            (0..matrices.len()).for_each(|index| stats.expect(name, index, columns));
        }
        let target = TargetKey::of(name);
        GroupedProjection { name: name.into(), target, matrices, biases, stats: stats.cloned() }
    }

    /// Outputs per row.
    pub(crate) fn outputs(&self) -> usize {
        self.matrices[0].shape().rows
    }

    /// out = x × matrixᵀ + bias, with the map of each row, and what the row's adapter changes in that.
    pub(crate) fn apply(&self, groups: RowGroups<'_>, x: &mut Activations, out: &mut [f32], step: &Step<'_>) {
        if let Some(stats) = &self.stats {
            stats.add(&self.name, &x.float(), |row| groups.member_of(row));
        }
        let RowGroups { members, starts, .. } = groups;
        let with = (step.ops, step.pool, step.readings.of(&self.matrices[0]));
        multiply_groups(&self.matrices, Groups { members, starts }, x, out, with);
        let bytes = members.iter().map(|&member| self.matrices[member].bytes()).sum();
        step.profile.work(bytes, self.matrices[0].operations(x.rows()));
        let target = Target { key: self.target, outputs: (0, self.outputs()) };
        step.adapters.apply_groups(target, groups, (x, out), step);
        if let Some(biases) = &self.biases {
            step.pool.chunks(out, self.outputs(), |_, row, out| {
                step.ops.rows.add(&biases[groups.member_of(row)], out);
            });
        }
    }
}

impl RowGroups<'_> {
    /// The map that a row takes.
    fn member_of(&self, row: usize) -> usize {
        self.members[self.starts.partition_point(|start| *start <= row) - 1]
    }
}
