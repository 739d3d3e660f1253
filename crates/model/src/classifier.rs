//! What a model says of a text or of two, made from one row.

use cascadia_kernels::{Activation, Activations, Shape};

use crate::catalog::Catalog;
use crate::norm::Norm;
use crate::projection::Projection;
use crate::spec::{ClassifierActivation, ClassifierDense, ClassifierSpec};
use crate::step::Step;
use crate::{ModelError, ModelSpec};

/// One matrix, or two with an activation between them.
pub(crate) struct Classifier {
    dense: Option<Dense>,
    output: Projection,
    row: Activations,
}

struct Dense {
    matrix: Projection,
    activation: ClassifierActivation,
    norm: Option<Norm>,
}

impl Classifier {
    /// Finds the classifier in the model's files.
    pub(crate) fn new(
        catalog: &Catalog<'_>,
        spec: &ModelSpec,
        classifier: ClassifierSpec,
    ) -> Result<Classifier, ModelError> {
        let width = spec.width;
        let projection = |name: &str, rows: usize, biased: bool| -> Result<Projection, ModelError> {
            let weight = format!("{name}.weight");
            let matrix = catalog.matrix(&weight, Shape { rows, columns: width })?;
            let bias = biased.then(|| catalog.require_vector(&format!("{name}.bias"), rows)).transpose()?;
            Ok(Projection::new(&weight, matrix, bias))
        };
        let dense = classifier.dense.map(|ClassifierDense { activation, bias, normed }| -> Result<Dense, ModelError> {
            let norm = normed.then(|| Norm::new(catalog, "cls.norm", width, spec.norm)).transpose()?;
            Ok(Dense { matrix: projection("cls", width, bias)?, activation, norm })
        });
        let output = projection("cls.output", classifier.outputs, classifier.bias)?;
        Ok(Classifier { dense: dense.transpose()?, output, row: Activations::with_capacity(1, width) })
    }

    /// What is said of a text with this row.
    pub(crate) fn run(&mut self, row: &[f32], step: &Step<'_>) -> Vec<f32> {
        self.row.reset(1, row.len()).copy_from_slice(row);
        if let Some(Dense { matrix, activation, norm }) = &self.dense {
            let mut inner = vec![0.0; row.len()];
            matrix.apply(&mut self.row, &mut inner, step);
            match activation {
                ClassifierActivation::Tanh => inner.iter_mut().for_each(|number| *number = libm::tanhf(*number)),
                ClassifierActivation::Gelu => step.ops.rows.activate(Activation::Gelu, &mut inner),
            }
            let input = self.row.reset(1, row.len());
            match norm {
                Some(norm) => norm.apply(&inner, input, step),
                None => input.copy_from_slice(&inner),
            }
        }
        let mut out = vec![0.0; self.output.outputs()];
        self.output.apply(&mut self.row, &mut out, step);
        out
    }
}
