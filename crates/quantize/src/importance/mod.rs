//! How much each column of each matrix matters: the mean square of the activations that it multiplies.

mod gguf;
mod legacy;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cascadia_model::ActivationStats;
use cascadia_weights::{ModelFiles, WeightsError};

use crate::QuantizeError;

/// Importances by the GGUF names of tensors. Errors in columns that matter count more while quantising.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Importance {
    /// Where it comes from, for messages.
    source: PathBuf,
    tensors: BTreeMap<String, Vec<f32>>,
}

/// The importances of one tensor: one per column, or for tensors of several matrices one per column of each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TensorImportance<'a> {
    values: &'a [f32],
    columns: usize,
    rows_per_matrix: usize,
}

impl Importance {
    /// Reads a file of llama.cpp's `llama-imatrix`, in its GGUF form or the older binary one.
    pub fn read(path: &Path) -> Result<Importance, QuantizeError> {
        let bytes = std::fs::read(path).map_err(|error| {
            QuantizeError::Weights(WeightsError::Io { action: "read", path: path.to_owned(), source: error })
        })?;
        let refuse = |problem: String| QuantizeError::Importance { path: path.to_owned(), problem };
        let tensors = if bytes.starts_with(b"GGUF") {
            let files = ModelFiles::from_vec(&path.to_string_lossy(), bytes)?;
            gguf::tensors(&files).map_err(refuse)?
        } else {
            legacy::tensors(&bytes).map_err(refuse)?
        };
        Importance { source: path.to_owned(), tensors }.checked()
    }

    /// What was measured while a model ran over the text at `source`.
    pub fn measured(stats: &ActivationStats, source: &Path) -> Result<Importance, QuantizeError> {
        let mut tensors: BTreeMap<String, Vec<f32>> = BTreeMap::new();
        // In the order of names and matrices, so that those of one tensor follow each other.
        for ((tensor, _), columns) in stats.read() {
            let rows = columns.rows.max(1) as f64;
            let means = columns.sums.iter().map(|sum| (sum / rows) as f32);
            tensors.entry(tensor).or_default().extend(means);
        }
        Importance { source: source.to_owned(), tensors }.checked()
    }

    /// How many tensors it knows.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether it knows none.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// The importances of a tensor with this shape, rows outermost; `None` when there are none for it.
    pub(crate) fn of(&self, tensor: &str, shape: &[u64]) -> Result<Option<TensorImportance<'_>>, QuantizeError> {
        let Some(values) = self.tensors.get(tensor) else { return Ok(None) };
        let [matrices @ .., rows, columns] = shape else { return Ok(None) };
        let matrices: u64 = matrices.iter().product();
        if values.len() as u64 != *columns && Some(values.len() as u64) != columns.checked_mul(matrices) {
            let problem = format!(
                "it has {} numbers for tensor `{tensor}`, which has {columns} columns; was it made for another model?",
                values.len()
            );
            return Err(QuantizeError::Importance { path: self.source.clone(), problem });
        }
        Ok(Some(TensorImportance { values, columns: *columns as usize, rows_per_matrix: *rows as usize }))
    }

    fn checked(self) -> Result<Importance, QuantizeError> {
        let broken = |value: &&f32| !value.is_finite() || **value < 0.0;
        let found = self.tensors.iter().find_map(|(name, values)| Some((name, values.iter().find(broken)?)));
        match found {
            None if self.is_empty() => {
                let problem = "it holds no importances; use --calibrate to measure them here".into();
                Err(QuantizeError::Importance { path: self.source, problem })
            }
            None => Ok(self),
            Some((name, value)) => {
                let problem = format!("tensor `{name}` has an importance of {value}; make the file again");
                Err(QuantizeError::Importance { path: self.source, problem })
            }
        }
    }
}

impl<'a> TensorImportance<'a> {
    /// The importances of the columns of a row, counted through all matrices.
    pub(crate) fn of_row(&self, row: usize) -> &'a [f32] {
        let matrix = if self.values.len() == self.columns { 0 } else { row / self.rows_per_matrix };
        &self.values[matrix * self.columns..][..self.columns]
    }
}
