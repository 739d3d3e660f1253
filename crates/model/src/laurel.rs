//! A branch through a few numbers beside the mixer.

use crate::Kind;
use crate::norm::Norm;
use crate::projection::Projection;
use crate::step::Step;
use crate::workspace::Workspace;

/// x + norm(out(into(x))), where x is what the mixer reads.
pub(crate) struct Laurel {
    pub(crate) into: Projection,
    pub(crate) out: Projection,
    pub(crate) norm: Norm,
    pub(crate) scale: f32,
}

impl Laurel {
    /// Reads `workspace.input`, leaves the result in `workspace.laurel` while the mixer runs.
    pub(crate) fn run(&self, step: &Step<'_>, workspace: &mut Workspace) {
        let Workspace { input, inner, laurel, spare, width, .. } = workspace;
        let rows = step.rows();
        self.into.apply(input, inner.reset(rows, self.into.outputs()), step);
        laurel.resize(rows * *width, 0.0);
        self.out.apply(inner, laurel, step);
        step.profile.mark(Kind::Laurel);
        self.norm.apply_in_place(laurel, spare, step);
        let read = input.float();
        step.pool.chunks(laurel, *width, |_, row, out| step.ops.rows.add(read.row(row), out));
        step.profile.mark(Kind::Norm);
    }

    /// hidden = (hidden + result) × scale.
    pub(crate) fn join(&self, step: &Step<'_>, hidden: &mut [f32], workspace: &Workspace) {
        let (width, beside) = (workspace.width, &workspace.laurel);
        step.pool.chunks(hidden, width, |_, row, hidden| {
            step.ops.rows.add(&beside[row * width..(row + 1) * width], hidden);
            hidden.iter_mut().for_each(|number| *number *= self.scale);
        });
        step.profile.mark(Kind::Add);
    }
}
