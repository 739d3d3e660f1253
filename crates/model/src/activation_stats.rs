//! Measures the activations that meet each matrix: the sum of squares of every column.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cascadia_kernels::Rows;

/// Column statistics of every matrix of a model that was loaded with them. Clones share what was measured.
#[derive(Clone, Debug, Default)]
pub struct ActivationStats {
    matrices: Arc<Mutex<BTreeMap<MatrixId, ColumnStats>>>,
}

/// A matrix by the GGUF name of its tensor, and which of the tensor's matrices it is (0 unless it holds experts).
pub type MatrixId = (String, usize);

/// What one matrix was multiplied with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ColumnStats {
    /// Σ x² for every column.
    pub sums: Vec<f64>,
    /// Rows that were added up.
    pub rows: u64,
}

impl ActivationStats {
    /// What was measured so far.
    pub fn read(&self) -> BTreeMap<MatrixId, ColumnStats> {
        self.lock().clone()
    }

    /// A matrix will be measured; until then its sums are zero.
    pub(crate) fn expect(&self, tensor: &str, matrix: usize, columns: usize) {
        self.lock().insert((tensor.to_owned(), matrix), ColumnStats { sums: vec![0.0; columns], rows: 0 });
    }

    /// Adds rows that meet the matrices that `matrix_of` says. One row after the other, so that the sums are the same
    /// however a text is cut into steps.
    pub(crate) fn add(&self, tensor: &str, rows: &Rows<'_, f32>, matrix_of: impl Fn(usize) -> usize) {
        let mut matrices = self.lock();
        for row in 0..rows.count() {
            let columns = matrices.entry((tensor.to_owned(), matrix_of(row))).or_default();
            columns.sums.resize(rows.length(), 0.0);
            for (sum, &value) in columns.sums.iter_mut().zip(rows.row(row)) {
                *sum += f64::from(value) * f64::from(value);
            }
            columns.rows += 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<MatrixId, ColumnStats>> {
        self.matrices.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
