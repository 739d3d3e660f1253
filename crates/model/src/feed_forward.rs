//! The gated feed-forward part of a layer.

use crate::Machine;
use crate::projection::Projection;
use crate::workspace::Workspace;

/// down(silu(gate(x)) × up(x)).
pub(crate) struct FeedForward {
    pub(crate) gate: Projection,
    pub(crate) up: Projection,
    pub(crate) down: Projection,
}

impl FeedForward {
    /// Reads `workspace.input`, leaves the result in `workspace.output`.
    pub(crate) fn run(&self, rows: usize, workspace: &mut Workspace, machine: &Machine) {
        let Workspace { input, inner, gate, output, .. } = workspace;
        let width = self.gate.outputs();
        gate.resize(rows * width, 0.0);
        self.gate.apply(input, gate, machine);
        let up = inner.reset(rows, width);
        self.up.apply(input, up, machine);
        machine.pool.chunks(up, width, |row, up| machine.ops.silu_multiply(&gate[row * width..(row + 1) * width], up));
        output.resize(rows * self.down.outputs(), 0.0);
        self.down.apply(inner, output, machine);
    }
}
