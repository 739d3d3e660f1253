//! The part of a layer that works on each token by itself.

use cascadia_kernels::Activation;

use crate::experts::Experts;
use crate::projection::Projection;
use crate::sides::Sides;
use crate::workspace::Workspace;
use crate::{Kind, Machine};

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
    pub(crate) fn run(&self, rows: usize, workspace: &mut Workspace, machine: &Machine) {
        match self {
            FeedForward::Dense(dense) => dense.run(rows, workspace, machine),
            FeedForward::Experts(experts) => experts.run(rows, workspace, machine),
            FeedForward::Sides(sides) => sides.run(rows, workspace, machine),
        }
    }
}

impl Dense {
    /// Reads `workspace.input`, leaves the result in `workspace.output`.
    pub(crate) fn run(&self, rows: usize, workspace: &mut Workspace, machine: &Machine) {
        let Workspace { input, inner, gate, output, .. } = workspace;
        let (width, ops) = (self.up.outputs(), machine.ops);
        let up = inner.reset(rows, width);
        self.up.apply(input, up, machine);
        if let Some(projection) = &self.gate {
            gate.resize(rows * width, 0.0);
            projection.apply(input, gate, machine);
            machine.profile.mark(Kind::FeedForwardInput);
            if let Some(deviations) = self.gate_cut {
                machine.pool.chunks(gate, width, |_, gate| ops.cut_below(deviations, gate));
            }
            machine.pool.chunks(up, width, |row, up| {
                ops.activate_multiply(self.activation, &gate[row * width..(row + 1) * width], up);
            });
        } else {
            machine.profile.mark(Kind::FeedForwardInput);
            machine.pool.chunks(up, width, |_, up| ops.activate(self.activation, up));
        }
        machine.profile.mark(Kind::Activation);
        output.resize(rows * self.down.outputs(), 0.0);
        self.down.apply(inner, output, machine);
        machine.profile.mark(Kind::FeedForwardOutput);
    }
}
