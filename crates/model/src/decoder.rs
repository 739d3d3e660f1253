//! The forward pass: one piece of code for every architecture.

use crate::altup::LayerAltUp;
use crate::feed_forward::FeedForward;
use crate::kv_pool::LayerCache;
use crate::laurel::Laurel;
use crate::mixer::{Mixer, StepView};
use crate::norm::Norm;
use crate::per_layer::PerLayerBranch;
use crate::spec::BranchOrder;
use crate::workspace::Workspace;
use crate::{Compute, Kind};

/// One layer, ready to run.
pub(crate) struct Layer {
    pub(crate) mixer: Mixer,
    pub(crate) mixer_norms: BranchNorms,
    pub(crate) beside_mixer: Option<Laurel>,
    pub(crate) feed_forward: FeedForward,
    pub(crate) feed_forward_norms: BranchNorms,
    pub(crate) order: BranchOrder,
    /// What leads from the stream that the branches compute to the others.
    pub(crate) streams: Option<LayerAltUp>,
    /// What an input of the layer's own adds after both branches.
    pub(crate) per_layer: Option<(PerLayerBranch, BranchNorms)>,
    pub(crate) residual_scale: f32,
    /// What hidden states are multiplied with in the end.
    pub(crate) output_scale: Option<f32>,
}

/// The norms around one branch of a layer.
pub(crate) struct BranchNorms {
    pub(crate) before: Option<Norm>,
    pub(crate) after: Option<Norm>,
}

impl Layer {
    /// Replaces the rows of `hidden` by what they are after this layer.
    pub(crate) fn forward(
        &self,
        step: &StepView<'_>,
        hidden: &mut [f32],
        cache: &mut LayerCache,
        (workspace, compute): (&mut Workspace, &Compute),
    ) {
        match &self.streams {
            None => {
                self.run_branches(step, hidden, cache, (workspace, compute));
                if self.run_per_layer(hidden, workspace, compute) {
                    self.add(hidden, workspace, compute);
                }
            }
            Some(streams) => {
                let mut active = std::mem::take(&mut workspace.streams.active);
                streams.predict(hidden, &mut active, workspace, compute);
                self.run_branches(step, &mut active, cache, (workspace, compute));
                streams.correct(hidden, &mut active, workspace, compute);
                if self.run_per_layer(&active, workspace, compute) {
                    self.scale_output(workspace);
                    streams.add_after_first(hidden, &workspace.output, compute);
                }
                workspace.streams.active = active;
            }
        }
        if let Some(scale) = self.output_scale {
            hidden.iter_mut().for_each(|number| *number *= scale);
        }
    }

    /// Adds both branches to rows of one stream.
    fn run_branches(
        &self,
        step: &StepView<'_>,
        hidden: &mut [f32],
        cache: &mut LayerCache,
        (workspace, compute): (&mut Workspace, &Compute),
    ) {
        let rows = step.plan.tokens.len();
        self.mixer_norms.enter(hidden, rows, workspace, compute);
        if let Some(beside) = &self.beside_mixer {
            beside.run(rows, workspace, compute);
        }
        self.mixer.run(step, cache, workspace, compute);
        self.mixer_norms.leave(workspace, compute);
        match self.order {
            BranchOrder::InTurn => {
                self.add_mixed(hidden, workspace, compute);
                self.feed_forward_norms.enter(hidden, rows, workspace, compute);
            }
            BranchOrder::AtOnce => {
                self.feed_forward_norms.enter(hidden, rows, workspace, compute);
                self.add_mixed(hidden, workspace, compute);
            }
        }
        self.feed_forward.run(rows, workspace, compute);
        self.feed_forward_norms.leave(workspace, compute);
        self.add(hidden, workspace, compute);
    }

    /// Leaves in `workspace.output` what the layer makes of its own input. Says whether it has one.
    fn run_per_layer(&self, hidden: &[f32], workspace: &mut Workspace, compute: &Compute) -> bool {
        let Some((branch, norms)) = &self.per_layer else { return false };
        let rows = hidden.len() / workspace.width;
        norms.enter(hidden, rows, workspace, compute);
        branch.run(rows, workspace, compute);
        norms.leave(workspace, compute);
        true
    }

    /// Adds the result of the mixer and of what is beside it.
    fn add_mixed(&self, hidden: &mut [f32], workspace: &mut Workspace, compute: &Compute) {
        self.add(hidden, workspace, compute);
        if let Some(beside) = &self.beside_mixer {
            beside.join(hidden, workspace, compute);
        }
    }

    /// Adds the result of a branch to the hidden states.
    fn add(&self, hidden: &mut [f32], workspace: &mut Workspace, compute: &Compute) {
        self.scale_output(workspace);
        let (output, width) = (&workspace.output, workspace.width);
        compute.pool.chunks(hidden, width, |_, row, hidden| {
            compute.ops.rows.add(&output[row * width..(row + 1) * width], hidden)
        });
        compute.profile.mark(Kind::Add);
    }

    /// Brings the result of a branch to the scale in which it is added.
    fn scale_output(&self, workspace: &mut Workspace) {
        if self.residual_scale != 1.0 {
            workspace.output.iter_mut().for_each(|number| *number *= self.residual_scale);
        }
    }
}

impl BranchNorms {
    /// Puts what the branch reads into `workspace.input`.
    pub(crate) fn enter(&self, hidden: &[f32], rows: usize, workspace: &mut Workspace, compute: &Compute) {
        let input = workspace.input.reset(rows, workspace.width);
        match &self.before {
            Some(norm) => norm.apply(hidden, input, compute),
            None => input.copy_from_slice(hidden),
        }
        compute.profile.mark(Kind::Norm);
    }

    /// Finishes what the branch has left in `workspace.output`.
    pub(crate) fn leave(&self, workspace: &mut Workspace, compute: &Compute) {
        if let Some(norm) = &self.after {
            norm.apply_in_place(&mut workspace.output, &mut workspace.spare, compute);
            compute.profile.mark(Kind::Norm);
        }
    }
}
