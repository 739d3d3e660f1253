//! What each format costs each matrix: the error it makes, by how much errors of its kind were seen to matter.

use std::collections::BTreeMap;

use cascadia_kernels::quantize::{QuantizeError as NumbersError, quantize};
use cascadia_kernels::{Dtype, decode_row};

use crate::recipe::layer;
use crate::{Importance, QuantizeError};

/// Rows of a matrix whose errors stand for all.
const SAMPLED_ROWS: usize = 48;

/// How many bands of layers are measured separately.
const BANDS: u64 = 3;

/// Matrices that are measured together: the same tensor of neighbouring layers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Group {
    tensor: String,
    band: u64,
}

impl Group {
    /// The group of a tensor in a model of so many layers.
    pub(super) fn of(name: &str, layers: u64) -> Group {
        let Some(layer) = layer(name) else { return Group { tensor: name.to_owned(), band: 0 } };
        let tensor = name.splitn(3, '.').nth(2).unwrap_or(name).to_owned();
        Group { tensor, band: layer.saturating_mul(BANDS) / layers.max(1) }
    }
}

/// A matrix as it lies in the source.
pub(super) struct Stored<'a> {
    pub(super) name: &'a str,
    pub(super) shape: &'a [u64],
    pub(super) dtype: Dtype,
    pub(super) bytes: &'a [u8],
}

/// The squared error of storing a matrix in each of the formats, weighted by importance where it is known.
pub(super) fn errors(
    matrix: &Stored<'_>,
    importance: Option<&Importance>,
    formats: &[Dtype],
) -> Result<Vec<f64>, QuantizeError> {
    let columns = matrix.shape.last().copied().unwrap_or(0) as usize;
    let importance = importance.map(|importance| importance.of(matrix.name, matrix.shape));
    let importance = importance.transpose()?.flatten();
    let row_bytes = matrix.dtype.row_bytes(columns as u64).unwrap_or(0).max(1) as usize;
    let rows = matrix.bytes.len() / row_bytes;
    let sampled: Vec<usize> = (0..rows).step_by(rows.div_ceil(SAMPLED_ROWS).max(1)).collect();
    let share = rows as f64 / sampled.len().max(1) as f64;
    let mut values = vec![0.0; columns];
    let mut sums = vec![0.0; formats.len()];
    for row in sampled {
        decode_row(matrix.dtype, &matrix.bytes[row * row_bytes..(row + 1) * row_bytes], &mut values);
        for (sum, &dtype) in sums.iter_mut().zip(formats) {
            let error = row_error(&values, importance.map(|importance| importance.of_row(row)), dtype);
            *sum +=
                share * error.map_err(|source| QuantizeError::Numbers { tensor: matrix.name.to_owned(), source })?;
        }
    }
    Ok(sums)
}

fn row_error(values: &[f32], importance: Option<&[f32]>, dtype: Dtype) -> Result<f64, NumbersError> {
    let bytes = dtype.row_bytes(values.len() as u64).unwrap_or(0) as usize;
    let (mut stored, mut decoded) = (vec![0; bytes], vec![0.0; values.len()]);
    quantize(dtype, values, importance, &mut stored)?;
    decode_row(dtype, &stored, &mut decoded);
    let squares = values.iter().zip(&decoded).map(|(value, decoded)| f64::from(value - decoded).powi(2));
    Ok(match importance {
        Some(importance) => squares.zip(importance).map(|(square, &weight)| square * f64::from(weight)).sum(),
        None => squares.sum(),
    })
}

/// How much divergence a unit of error makes in each group: what was measured, divided by the errors that made it.
pub(super) fn slopes(measured: &BTreeMap<Group, f64>, errors: &BTreeMap<Group, f64>) -> BTreeMap<Group, f64> {
    let slope = |(group, divergence): (&Group, &f64)| {
        let error = errors.get(group).copied().unwrap_or(0.0);
        (group.clone(), if error > 0.0 { divergence.max(0.0) / error } else { 0.0 })
    };
    measured.iter().map(slope).collect()
}
