//! A branch through a few numbers beside the mixer.

use crate::norm::Norm;
use crate::projection::Projection;
use crate::workspace::Workspace;
use crate::{Kind, Machine};

/// x + norm(out(into(x))), where x is what the mixer reads.
pub(crate) struct LowRank {
    pub(crate) into: Projection,
    pub(crate) out: Projection,
    pub(crate) norm: Norm,
    pub(crate) scale: f32,
}

impl LowRank {
    /// Reads `workspace.input`, leaves the result in `workspace.beside_mixer` while the mixer runs.
    pub(crate) fn run(&self, rows: usize, workspace: &mut Workspace, machine: &Machine) {
        let Workspace { input, inner, beside_mixer, spare, width, .. } = workspace;
        self.into.apply(input, inner.reset(rows, self.into.outputs()), machine);
        beside_mixer.resize(rows * *width, 0.0);
        self.out.apply(inner, beside_mixer, machine);
        machine.profile.mark(Kind::LowRank);
        self.norm.apply_in_place(beside_mixer, spare, machine);
        let read = input.float();
        machine.pool.chunks(beside_mixer, *width, |row, out| machine.ops.add(read.row(row), out));
        machine.profile.mark(Kind::Norm);
    }

    /// hidden = (hidden + result) × scale.
    pub(crate) fn join(&self, hidden: &mut [f32], workspace: &Workspace, machine: &Machine) {
        let (width, beside) = (workspace.width, &workspace.beside_mixer);
        machine.pool.chunks(hidden, width, |row, hidden| {
            machine.ops.add(&beside[row * width..(row + 1) * width], hidden);
            hidden.iter_mut().for_each(|number| *number *= self.scale);
        });
        machine.profile.mark(Kind::Add);
    }
}
