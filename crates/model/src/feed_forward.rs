//! The part of a layer that works on each token by itself.

use cascadia_kernels::Activation;

use crate::experts::Experts;
use crate::projection::Projection;
use crate::sides::Sides;
use crate::workspace::Workspace;
use crate::{Compute, Kind};

/// What a layer has after its mixer.
pub(crate) enum FeedForward {
    /// All tokens share it.
    Dense(Box<Dense>),
    /// Each token uses a few of many.
    Experts(Box<Experts>),
    /// Both, side by side.
    Sides(Box<Sides>),
}

/// down(activation(gate(x)) × up(x)), or down(activation(up(x))) without a gate.
pub(crate) struct Dense {
    pub(crate) gate: Option<Projection>,
    pub(crate) up: Projection,
    pub(crate) down: Projection,
    pub(crate) activation: Activation,
    /// Standard deviations above their mean from which gates count.
    pub(crate) gate_cut: Option<f32>,
}

impl FeedForward {
    /// Reads `workspace.input`, leaves the result in `workspace.output`.
    pub(crate) fn run(&self, rows: usize, workspace: &mut Workspace, compute: &Compute) {
        match self {
            FeedForward::Dense(dense) => dense.run(rows, workspace, compute),
            FeedForward::Experts(experts) => experts.run(rows, workspace, compute),
            FeedForward::Sides(sides) => sides.run(rows, workspace, compute),
        }
    }
}

impl Dense {
    /// Reads `workspace.input`, leaves the result in `workspace.output`.
    pub(crate) fn run(&self, rows: usize, workspace: &mut Workspace, compute: &Compute) {
        let Workspace { input, inner, gate, output, .. } = workspace;
        let (width, ops) = (self.up.outputs(), compute.ops);
        let up = inner.reset(rows, width);
        self.up.apply(input, up, compute);
        if let Some(projection) = &self.gate {
            gate.resize(rows * width, 0.0);
            projection.apply(input, gate, compute);
            compute.profile.mark(Kind::FeedForwardInput);
            if let Some(deviations) = self.gate_cut {
                compute.pool.chunks(gate, width, |_, _, gate| ops.rows.cut_below(deviations, gate));
            }
            compute.pool.chunks(up, width, |_, row, up| {
                ops.rows.activate_multiply(self.activation, &gate[row * width..(row + 1) * width], up);
            });
        } else {
            compute.profile.mark(Kind::FeedForwardInput);
            compute.pool.chunks(up, width, |_, _, up| ops.rows.activate(self.activation, up));
        }
        compute.profile.mark(Kind::Activation);
        output.resize(rows * self.down.outputs(), 0.0);
        self.down.apply(inner, output, compute);
        compute.profile.mark(Kind::FeedForwardOutput);
    }
}
