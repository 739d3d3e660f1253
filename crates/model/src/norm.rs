//! Normalisation of rows.

use crate::ModelError;
use crate::catalog::Catalog;
use crate::spec::{NormKind, NormSpec};
use crate::step::Step;

/// A norm with its weight.
pub(crate) struct Norm {
    weight: Vec<f32>,
    /// Of a layer norm, zeros where the model has none.
    bias: Vec<f32>,
    spec: NormSpec,
}

impl Norm {
    /// Finds the norm that GGUF calls `name` over rows of `width` numbers.
    pub(crate) fn new(catalog: &Catalog<'_>, name: &str, width: usize, spec: NormSpec) -> Result<Norm, ModelError> {
        let bias = match spec.kind {
            NormKind::RootMeanSquare => Vec::new(),
            NormKind::Layer { bias: false } => vec![0.0; width],
            NormKind::Layer { bias: true } => catalog.require_vector(&format!("{name}.bias"), width)?,
        };
        Ok(Norm { weight: catalog.require_vector(&format!("{name}.weight"), width)?, bias, spec })
    }

    /// A norm by the mean square with this weight.
    pub(crate) fn by_mean_square(weight: Vec<f32>, epsilon: f32) -> Norm {
        Norm { weight, bias: Vec::new(), spec: NormSpec { kind: NormKind::RootMeanSquare, epsilon } }
    }

    /// rows = normalised rows; `spare` holds them meanwhile.
    pub(crate) fn apply_in_place(&self, rows: &mut [f32], spare: &mut Vec<f32>, step: &Step<'_>) {
        spare.clear();
        spare.extend_from_slice(rows);
        self.apply(spare, rows, step);
    }

    /// out = normalised rows.
    pub(crate) fn apply(&self, rows: &[f32], out: &mut [f32], step: &Step<'_>) {
        let (width, epsilon, ops) = (self.weight.len(), self.spec.epsilon, step.ops);
        step.pool.chunks(out, width, |_, row, out| {
            let row = &rows[row * width..(row + 1) * width];
            match self.spec.kind {
                NormKind::RootMeanSquare => ops.rows.rms_norm(row, &self.weight, epsilon, out),
                NormKind::Layer { .. } => ops.rows.layer_norm(row, (&self.weight, &self.bias), epsilon, out),
            }
        });
    }
}
