//! A matrix with its bias: the single place where activations meet weights.

use cascadia_kernels::{Activations, Matrix};

use crate::Compute;
use crate::energy::EnergyTap;

/// One linear map of a layer.
pub(crate) struct Projection {
    pub(crate) matrix: Matrix,
    pub(crate) bias: Option<Vec<f32>>,
    /// Where the activations are measured, when somebody asked for it.
    pub(crate) tap: Option<EnergyTap>,
}

impl Projection {
    /// Outputs per row.
    pub(crate) fn outputs(&self) -> usize {
        self.matrix.shape().rows
    }

    /// out = x × matrixᵀ + bias.
    pub(crate) fn apply(&self, x: &mut Activations, out: &mut [f32], compute: &Compute) {
        if let Some(tap) = &self.tap {
            tap.add(&x.float(), |_| 0);
        }
        self.matrix.multiply(x, out, compute.ops, &compute.pool);
        compute.profile.work(self.matrix.bytes(), self.matrix.operations(x.rows()));
        if let Some(bias) = &self.bias {
            compute.pool.chunks(out, bias.len(), |_, _, row| compute.ops.rows.add(bias, row));
        }
    }
}
