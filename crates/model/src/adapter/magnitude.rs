//! DoRA: rows of the changed matrix are scaled to learned magnitudes.

use std::sync::{Arc, OnceLock};

use cascadia_kernels::{Matrix, Shape};

use super::embedding;
use super::low_rank::add_weighted;
use crate::ModelError;
use crate::catalog::Catalog;

/// What rows of a changed matrix are scaled to.
pub(super) struct Magnitudes {
    learned: Vec<f32>,
    /// What that means for outputs; nothing before the base's matrix was seen, which may lie on another machine.
    scales: OnceLock<Arc<[f32]>>,
}

impl Magnitudes {
    /// One for each row, of a matrix that was not seen yet.
    pub(super) fn new(learned: Vec<f32>) -> Magnitudes {
        Magnitudes { learned, scales: OnceLock::new() }
    }

    /// What rows are scaled to.
    pub(super) fn learned(&self) -> &[f32] {
        &self.learned
    }

    /// What outputs are multiplied with.
    pub(super) fn scales(&self) -> &Arc<[f32]> {
        self.scales.get().expect("whoever computes with a matrix has seen it")
    }

    /// Whether the base's matrix was seen.
    pub(super) fn are_known(&self) -> bool {
        self.scales.get().is_some()
    }

    /// Finds the scales from the base's matrix and its update.
    pub(super) fn see(&self, base: &Matrix, (down, up): (&Matrix, &Matrix)) {
        let Shape { rows: rank, columns } = down.shape();
        let mut decoded = vec![0.0; rank * columns];
        decoded.chunks_exact_mut(columns).enumerate().for_each(|(row, out)| down.decode_row(row, out));
        let mut scales = vec![0.0; self.learned.len()];
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let part = scales.len().div_ceil(threads).max(1);
        std::thread::scope(|scope| {
            for (number, scales) in scales.chunks_mut(part).enumerate() {
                let down = &decoded;
                scope.spawn(move || self.fill((base, up, down), number * part, scales));
            }
        });
        // Another thread may have found the same.
        let _ = self.scales.set(scales.into());
    }

    /// The scales of rows from `first` on.
    fn fill(&self, (base, up, down): (&Matrix, &Matrix, &[f32]), first: usize, scales: &mut [f32]) {
        let mut changed = vec![0.0; base.shape().columns];
        let mut weights = vec![0.0; up.shape().columns];
        for (row, scale) in (first..).zip(scales) {
            base.decode_row(row, &mut changed);
            up.decode_row(row, &mut weights);
            add_weighted(&weights, down, &mut changed);
            let norm = changed.iter().map(|value| f64::from(*value) * f64::from(*value)).sum::<f64>().sqrt();
            // A row of zeros stays one, whatever it is scaled with.
            *scale = if norm > 0.0 { (f64::from(self.learned[row]) / norm) as f32 } else { 1.0 };
        }
    }
}

/// The matrices of a tensor of the base, unless another machine has them.
pub(super) fn matrices(catalog: &Catalog<'_>, name: &str) -> Result<Option<Vec<Matrix>>, ModelError> {
    let stored = if catalog.has(name) { name } else { embedding::NAME };
    if catalog.require(stored)?.is_elsewhere() {
        return Ok(None);
    }
    let (rows, columns, count) = catalog.matrix_shape(stored);
    let shape = Shape { rows, columns };
    let matrices = match count {
        1 => vec![catalog.matrix(stored, shape)?],
        _ => catalog.experts(stored, count, shape)?,
    };
    Ok(Some(matrices))
}
