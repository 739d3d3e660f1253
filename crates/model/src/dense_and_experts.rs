//! A dense part and experts side by side. Each side and the router read the hidden states through norms of their own.

use crate::decoder::BranchNorms;
use crate::experts::Experts;
use crate::feed_forward::Dense;
use crate::norm::Norm;
use crate::step::Step;
use crate::workspace::Workspace;
use crate::{FeedForwardSpec, Kind, ModelSpec};

/// Both sides, whose results are added.
pub(crate) struct DenseAndExperts {
    pub(crate) dense: Dense,
    pub(crate) dense_norms: BranchNorms,
    pub(crate) router_norm: Norm,
    pub(crate) experts: Experts,
    pub(crate) experts_norms: BranchNorms,
}

/// Buffers of a layer with two sides.
pub(crate) struct DenseAndExpertsWorkspace {
    hidden: Vec<f32>,
    /// What the dense side makes, while the other one runs.
    dense: Vec<f32>,
}

impl DenseAndExpertsWorkspace {
    /// Room for `rows` rows where the model has such a layer.
    pub(crate) fn new(spec: &ModelSpec, rows: usize) -> DenseAndExpertsWorkspace {
        let dense_and_experts =
            |layer: &crate::LayerSpec| matches!(layer.feed_forward.part, FeedForwardSpec::DenseAndExperts(_));
        let numbers = if spec.layers.iter().any(dense_and_experts) { rows * spec.width } else { 0 };
        DenseAndExpertsWorkspace { hidden: Vec::with_capacity(numbers), dense: Vec::with_capacity(numbers) }
    }
}

impl DenseAndExperts {
    /// Reads hidden states from `workspace.input`, leaves the result in `workspace.output`.
    pub(crate) fn run(&self, step: &Step<'_>, workspace: &mut Workspace) {
        let (rows, width) = (step.rows(), workspace.width);
        let mut hidden = std::mem::take(&mut workspace.dense_and_experts.hidden);
        hidden.clear();
        (0..rows).for_each(|row| hidden.extend_from_slice(workspace.input.float().row(row)));
        self.dense_norms.enter(step, &hidden, workspace);
        self.dense.run(step, workspace);
        self.dense_norms.leave(step, workspace);
        std::mem::swap(&mut workspace.output, &mut workspace.dense_and_experts.dense);

        self.router_norm.apply(&hidden, workspace.input.reset(rows, width), step);
        step.profile.mark(Kind::Norm);
        self.experts.route(step, workspace);
        self.experts_norms.enter(step, &hidden, workspace);
        workspace.output.clear();
        workspace.output.resize(rows * width, 0.0);
        self.experts.run_routed(step, workspace);
        self.experts_norms.leave(step, workspace);
        let Workspace { output, dense_and_experts, .. } = workspace;
        step.pool.chunks(output, width, |_, row, out| {
            step.ops.rows.add(&dense_and_experts.dense[row * width..(row + 1) * width], out);
        });
        step.profile.mark(Kind::Add);
        dense_and_experts.hidden = hidden;
    }
}
