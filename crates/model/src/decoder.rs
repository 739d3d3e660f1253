//! The forward pass: one piece of code for every architecture.

use crate::Kind;
use crate::altup::LayerAltUp;
use crate::feed_forward::FeedForward;
use crate::kv::LayerCache;
use crate::laurel::Laurel;
use crate::mixer::Mixer;
use crate::norm::Norm;
use crate::per_layer::PerLayerBranch;
use crate::spec::BranchOrder;
use crate::step::Step;
use crate::streamed_experts::ExpertPlaces;
use crate::workspace::Workspace;

/// One layer, ready to run.
pub(crate) struct Layer {
    pub(crate) mixer: Mixer,
    pub(crate) mixer_norms: BranchNorms,
    /// The low-rank branch beside the mixer.
    pub(crate) laurel: Option<Laurel>,
    pub(crate) feed_forward: FeedForward,
    pub(crate) feed_forward_norms: BranchNorms,
    pub(crate) order: BranchOrder,
    /// What leads from the stream that the branches compute to the others.
    pub(crate) altup: Option<LayerAltUp>,
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
    /// Of the hidden states, once the branch is added.
    pub(crate) of_sum: Option<Norm>,
}

impl Layer {
    /// The same with its experts read from these places in every step, if there are some.
    pub(crate) fn streaming(self, places: Option<ExpertPlaces>) -> Layer {
        Layer { feed_forward: self.feed_forward.streaming(places), ..self }
    }

    /// Replaces the rows of `hidden` by what they are after this layer.
    pub(crate) fn forward(
        &self,
        step: &Step<'_>,
        hidden: &mut [f32],
        cache: &mut LayerCache<'_>,
        workspace: &mut Workspace,
    ) {
        match &self.altup {
            None => {
                self.run_branches(step, hidden, cache, workspace);
                if self.run_per_layer(step, hidden, workspace) {
                    self.add(step, hidden, workspace);
                }
            }
            Some(altup) => {
                let mut active = std::mem::take(&mut workspace.altup.active);
                altup.predict(step, hidden, &mut active, workspace);
                self.run_branches(step, &mut active, cache, workspace);
                altup.correct(step, hidden, &mut active, workspace);
                if self.run_per_layer(step, &active, workspace) {
                    self.scale_output(workspace);
                    altup.add_after_first(step, hidden, &workspace.output);
                }
                workspace.altup.active = active;
            }
        }
        if let Some(scale) = self.output_scale {
            hidden.iter_mut().for_each(|number| *number *= scale);
        }
    }

    /// Adds both branches to rows of one stream.
    fn run_branches(&self, step: &Step<'_>, hidden: &mut [f32], cache: &mut LayerCache<'_>, workspace: &mut Workspace) {
        self.mixer_norms.enter(step, hidden, workspace);
        if let Some(laurel) = &self.laurel {
            laurel.run(step, workspace);
        }
        self.mixer.run(step, cache, workspace);
        self.mixer_norms.leave(step, workspace);
        match self.order {
            BranchOrder::InTurn => {
                self.add_mixed(step, hidden, workspace);
                self.mixer_norms.finish(step, hidden, workspace);
                self.feed_forward_norms.enter(step, hidden, workspace);
            }
            BranchOrder::AtOnce => {
                self.feed_forward_norms.enter(step, hidden, workspace);
                self.add_mixed(step, hidden, workspace);
            }
        }
        self.feed_forward.run(step, workspace);
        self.feed_forward_norms.leave(step, workspace);
        self.add(step, hidden, workspace);
        self.feed_forward_norms.finish(step, hidden, workspace);
    }

    /// Leaves in `workspace.output` what the layer makes of its own input. Says whether it has one.
    fn run_per_layer(&self, step: &Step<'_>, hidden: &[f32], workspace: &mut Workspace) -> bool {
        let Some((branch, norms)) = &self.per_layer else { return false };
        norms.enter(step, hidden, workspace);
        branch.run(step, workspace);
        norms.leave(step, workspace);
        true
    }

    /// Adds the results of the mixer and of the LAuReL branch beside it.
    fn add_mixed(&self, step: &Step<'_>, hidden: &mut [f32], workspace: &mut Workspace) {
        self.add(step, hidden, workspace);
        if let Some(laurel) = &self.laurel {
            laurel.join(step, hidden, workspace);
        }
    }

    /// Adds the result of a branch to the hidden states.
    fn add(&self, step: &Step<'_>, hidden: &mut [f32], workspace: &mut Workspace) {
        self.scale_output(workspace);
        let (output, width) = (&workspace.output, workspace.width);
        step.pool.chunks(hidden, width, |_, row, hidden| {
            step.ops.rows.add(&output[row * width..(row + 1) * width], hidden);
        });
        step.profile.mark(Kind::Add);
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
    pub(crate) fn enter(&self, step: &Step<'_>, hidden: &[f32], workspace: &mut Workspace) {
        let input = workspace.input.reset(step.rows(), workspace.width);
        match &self.before {
            Some(norm) => norm.apply(hidden, input, step),
            None => input.copy_from_slice(hidden),
        }
        step.profile.mark(Kind::Norm);
    }

    /// Finishes what the branch has left in `workspace.output`.
    pub(crate) fn leave(&self, step: &Step<'_>, workspace: &mut Workspace) {
        if let Some(norm) = &self.after {
            norm.apply_in_place(&mut workspace.output, &mut workspace.spare, step);
            step.profile.mark(Kind::Norm);
        }
    }

    /// Finishes the hidden states that the branch was added to.
    fn finish(&self, step: &Step<'_>, hidden: &mut [f32], workspace: &mut Workspace) {
        if let Some(norm) = &self.of_sum {
            norm.apply_in_place(hidden, &mut workspace.spare, step);
            step.profile.mark(Kind::Norm);
        }
    }
}
