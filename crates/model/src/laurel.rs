//! A branch through a few numbers beside the mixer.

use crate::norm::Norm;
use crate::projection::Projection;
use crate::workspace::Workspace;
use crate::{Compute, Kind};

/// x + norm(out(into(x))), where x is what the mixer reads.
pub(crate) struct Laurel {
    pub(crate) into: Projection,
    pub(crate) out: Projection,
    pub(crate) norm: Norm,
    pub(crate) scale: f32,
}

impl Laurel {
    /// Reads `workspace.input`, leaves the result in `workspace.beside_mixer` while the mixer runs.
    pub(crate) fn run(&self, rows: usize, workspace: &mut Workspace, compute: &Compute) {
        let Workspace { input, inner, beside_mixer, spare, width, .. } = workspace;
        self.into.apply(input, inner.reset(rows, self.into.outputs()), compute);
        beside_mixer.resize(rows * *width, 0.0);
        self.out.apply(inner, beside_mixer, compute);
        compute.profile.mark(Kind::Laurel);
        self.norm.apply_in_place(beside_mixer, spare, compute);
        let read = input.float();
        compute.pool.chunks(beside_mixer, *width, |_, row, out| compute.ops.rows.add(read.row(row), out));
        compute.profile.mark(Kind::Norm);
    }

    /// hidden = (hidden + result) × scale.
    pub(crate) fn join(&self, hidden: &mut [f32], workspace: &Workspace, compute: &Compute) {
        let (width, beside) = (workspace.width, &workspace.beside_mixer);
        compute.pool.chunks(hidden, width, |_, row, hidden| {
            compute.ops.rows.add(&beside[row * width..(row + 1) * width], hidden);
            hidden.iter_mut().for_each(|number| *number *= self.scale);
        });
        compute.profile.mark(Kind::Add);
    }
}
