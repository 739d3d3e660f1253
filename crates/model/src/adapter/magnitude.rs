//! DoRA: rows of the changed matrix are scaled to learned magnitudes.

use cascadia_kernels::Matrix;

use super::arrange::{Base, Factors};
use super::low_rank::add_weighted;
use crate::ModelError;
use cascadia_kernels::Shape;

/// What the outputs of a matrix of the base are multiplied with once the update is added; none without magnitudes.
pub(super) fn scales(
    base: &Base<'_>,
    (name, member): (&str, usize),
    factors: &Factors,
) -> Result<Option<Vec<f32>>, ModelError> {
    let Some(magnitudes) = &factors.magnitude else { return Ok(None) };
    let (rows, columns, count) = base.shape(name);
    let stored = if base.catalog.has(name) { name } else { "token_embd.weight" };
    let matrix = match count {
        1 => base.catalog.matrix(stored, Shape { rows, columns })?,
        _ => base.catalog.experts(stored, count, Shape { rows, columns })?.swap_remove(member),
    };
    let mut scales = vec![0.0; rows];
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let part = rows.div_ceil(threads);
    std::thread::scope(|scope| {
        for (number, scales) in scales.chunks_mut(part).enumerate() {
            let matrix = &matrix;
            scope.spawn(move || fill(matrix, (number * part, factors, magnitudes), scales));
        }
    });
    Ok(Some(scales))
}

/// The scales of rows from `first` on.
fn fill(matrix: &Matrix, (first, factors, magnitudes): (usize, &Factors, &[f32]), scales: &mut [f32]) {
    let mut changed = vec![0.0; matrix.shape().columns];
    for (row, scale) in (first..).zip(scales) {
        matrix.decode_row(row, &mut changed);
        add_weighted(&factors.up[row * factors.rank..(row + 1) * factors.rank], &factors.down, &mut changed);
        let norm = changed.iter().map(|value| f64::from(*value) * f64::from(*value)).sum::<f64>().sqrt();
        // A row of zeros stays one, whatever it is scaled with.
        *scale = if norm > 0.0 { (f64::from(magnitudes[row]) / norm) as f32 } else { 1.0 };
    }
}
