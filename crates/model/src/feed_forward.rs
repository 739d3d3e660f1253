//! The part of a layer that works on each token by itself.

use cascadia_kernels::Activation;

use crate::Kind;
use crate::dense_and_experts::DenseAndExperts;
use crate::experts::Experts;
use crate::projection::Projection;
use crate::step::Step;
use crate::streamed_experts::ExpertPlaces;
use crate::workspace::Workspace;

/// What a layer has after its mixer.
pub(crate) enum FeedForward {
    /// All tokens share it.
    Dense(Box<Dense>),
    /// Each token uses a few of many.
    Experts(Box<Experts>),
    /// Both, side by side.
    DenseAndExperts(Box<DenseAndExperts>),
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
    /// Its experts, if it has some.
    pub(crate) fn experts(&self) -> Option<&Experts> {
        match self {
            FeedForward::Dense(_) => None,
            FeedForward::Experts(experts) => Some(experts),
            FeedForward::DenseAndExperts(both) => Some(&both.experts),
        }
    }

    /// The same with its experts read from these places in every step, if there are some.
    pub(crate) fn streaming(mut self, places: Option<ExpertPlaces>) -> FeedForward {
        match &mut self {
            FeedForward::Dense(_) => {}
            FeedForward::Experts(experts) => experts.streamed = places,
            FeedForward::DenseAndExperts(both) => both.experts.streamed = places,
        }
        self
    }

    /// Reads `workspace.input`, leaves the result in `workspace.output`.
    pub(crate) fn run(&self, step: &Step<'_>, workspace: &mut Workspace) {
        match self {
            FeedForward::Dense(dense) => dense.run(step, workspace),
            FeedForward::Experts(experts) => experts.run(step, workspace),
            FeedForward::DenseAndExperts(dense_and_experts) => dense_and_experts.run(step, workspace),
        }
    }
}

impl Dense {
    /// Reads `workspace.input`, leaves the result in `workspace.output`.
    pub(crate) fn run(&self, step: &Step<'_>, workspace: &mut Workspace) {
        let Workspace { input, inner, gate, output, .. } = workspace;
        let (rows, width, ops) = (step.rows(), self.up.outputs(), step.ops);
        let up = inner.reset(rows, width);
        if let Some(projection) = &self.gate {
            gate.resize(rows * width, 0.0);
            Projection::apply_all([&self.up, projection], input, [up, gate], step);
            step.profile.mark(Kind::FeedForwardInput);
            if let Some(deviations) = self.gate_cut {
                step.pool.chunks(gate, width, |_, _, gate| ops.rows.cut_below(deviations, gate));
            }
            step.pool.chunks(up, width, |_, row, up| {
                ops.rows.activate_multiply(self.activation, &gate[row * width..(row + 1) * width], up);
            });
        } else {
            self.up.apply(input, up, step);
            step.profile.mark(Kind::FeedForwardInput);
            step.pool.chunks(up, width, |_, _, up| ops.rows.activate(self.activation, up));
        }
        step.profile.mark(Kind::Activation);
        output.resize(rows * self.down.outputs(), 0.0);
        self.down.apply(inner, output, step);
        step.profile.mark(Kind::FeedForwardOutput);
    }
}
