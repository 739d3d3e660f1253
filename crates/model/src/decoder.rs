//! The forward pass: one piece of code for every architecture.

use crate::Machine;
use crate::feed_forward::FeedForward;
use crate::kv_pool::LayerCache;
use crate::mixer::{SelfAttention, StepView};
use crate::norm::Norm;
use crate::workspace::Workspace;

/// One layer, ready to run.
pub(crate) struct Layer {
    pub(crate) attention_norm: Norm,
    pub(crate) attention: SelfAttention,
    pub(crate) feed_forward_norm: Norm,
    pub(crate) feed_forward: FeedForward,
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
        let rows = step.plan.tokens.len();
        let width = hidden.len() / rows;
        self.attention_norm.apply(hidden, workspace.input.reset(rows, width), machine);
        self.attention.run(step, cache, workspace, machine);
        add(&workspace.output, hidden, width, machine);
        self.feed_forward_norm.apply(hidden, workspace.input.reset(rows, width), machine);
        self.feed_forward.run(rows, workspace, machine);
        add(&workspace.output, hidden, width, machine);
    }
}

fn add(source: &[f32], hidden: &mut [f32], width: usize, machine: &Machine) {
    machine.pool.chunks(hidden, width, |row, hidden| machine.ops.add(&source[row * width..(row + 1) * width], hidden));
}
