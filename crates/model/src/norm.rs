//! Root-mean-square normalisation of rows.

use crate::Machine;

/// A norm with its weight.
pub(crate) struct Norm {
    pub(crate) weight: Vec<f32>,
    pub(crate) epsilon: f32,
}

impl Norm {
    /// out = normalised rows.
    pub(crate) fn apply(&self, rows: &[f32], out: &mut [f32], machine: &Machine) {
        let width = self.weight.len();
        machine.pool.chunks(out, width, |row, out| {
            machine.ops.rms_norm(&rows[row * width..(row + 1) * width], &self.weight, self.epsilon, out);
        });
    }
}
