//! The forward pass: one piece of code for every architecture.

use crate::feed_forward::FeedForward;
use crate::kv_pool::LayerCache;
use crate::low_rank::LowRank;
use crate::mixer::{Mixer, StepView};
use crate::norm::Norm;
use crate::per_layer::PerLayerBranch;
use crate::spec::BranchOrder;
use crate::streams::LayerStreams;
use crate::workspace::Workspace;
use crate::{Kind, Machine};

/// One layer, ready to run.
pub(crate) struct Layer {
    pub(crate) mixer: Mixer,
    pub(crate) mixer_norms: BranchNorms,
    pub(crate) beside_mixer: Option<LowRank>,
    pub(crate) feed_forward: FeedForward,
    pub(crate) feed_forward_norms: BranchNorms,
    pub(crate) order: BranchOrder,
    /// What leads from the stream that the branches compute to the others.
    pub(crate) streams: Option<LayerStreams>,
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
        (workspace, machine): (&mut Workspace, &Machine),
    ) {
        match &self.streams {
            None => {
                self.run_branches(step, hidden, cache, (workspace, machine));
                if self.run_per_layer(hidden, workspace, machine) {
                    self.add(hidden, workspace, machine);
                }
            }
            Some(streams) => {
                let mut active = std::mem::take(&mut workspace.streams.active);
                streams.predict(hidden, &mut active, workspace, machine);
                self.run_branches(step, &mut active, cache, (workspace, machine));
                streams.correct(hidden, &mut active, workspace, machine);
                if self.run_per_layer(&active, workspace, machine) {
                    self.scale_output(workspace);
                    streams.add_after_first(hidden, &workspace.output, machine);
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
        (workspace, machine): (&mut Workspace, &Machine),
    ) {
        let rows = step.plan.tokens.len();
        self.mixer_norms.enter(hidden, rows, workspace, machine);
        if let Some(beside) = &self.beside_mixer {
            beside.run(rows, workspace, machine);
        }
        self.mixer.run(step, cache, workspace, machine);
        self.mixer_norms.leave(workspace, machine);
        match self.order {
            BranchOrder::InTurn => {
                self.add_mixed(hidden, workspace, machine);
                self.feed_forward_norms.enter(hidden, rows, workspace, machine);
            }
            BranchOrder::AtOnce => {
                self.feed_forward_norms.enter(hidden, rows, workspace, machine);
                self.add_mixed(hidden, workspace, machine);
            }
        }
        self.feed_forward.run(rows, workspace, machine);
        self.feed_forward_norms.leave(workspace, machine);
        self.add(hidden, workspace, machine);
    }

    /// Leaves in `workspace.output` what the layer makes of its own input. Says whether it has one.
    fn run_per_layer(&self, hidden: &[f32], workspace: &mut Workspace, machine: &Machine) -> bool {
        let Some((branch, norms)) = &self.per_layer else { return false };
        let rows = hidden.len() / workspace.width;
        norms.enter(hidden, rows, workspace, machine);
        branch.run(rows, workspace, machine);
        norms.leave(workspace, machine);
        true
    }

    /// Adds the result of the mixer and of what is beside it.
    fn add_mixed(&self, hidden: &mut [f32], workspace: &mut Workspace, machine: &Machine) {
        self.add(hidden, workspace, machine);
        if let Some(beside) = &self.beside_mixer {
            beside.join(hidden, workspace, machine);
        }
    }

    /// Adds the result of a branch to the hidden states.
    fn add(&self, hidden: &mut [f32], workspace: &mut Workspace, machine: &Machine) {
        self.scale_output(workspace);
        let (output, width) = (&workspace.output, workspace.width);
        machine
            .pool
            .chunks(hidden, width, |row, hidden| machine.ops.add(&output[row * width..(row + 1) * width], hidden));
        machine.profile.mark(Kind::Add);
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
    pub(crate) fn enter(&self, hidden: &[f32], rows: usize, workspace: &mut Workspace, machine: &Machine) {
        let input = workspace.input.reset(rows, workspace.width);
        match &self.before {
            Some(norm) => norm.apply(hidden, input, machine),
            None => input.copy_from_slice(hidden),
        }
        machine.profile.mark(Kind::Norm);
    }

    /// Finishes what the branch has left in `workspace.output`.
    pub(crate) fn leave(&self, workspace: &mut Workspace, machine: &Machine) {
        if let Some(norm) = &self.after {
            norm.apply_in_place(&mut workspace.output, &mut workspace.spare, machine);
            machine.profile.mark(Kind::Norm);
        }
    }
}
