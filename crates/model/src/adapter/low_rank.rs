//! The update of one matrix: two small matrices, and what rows are scaled with.

use std::ops::Range;
use std::sync::Arc;

use cascadia_kernels::quantize::quantize;
use cascadia_kernels::{Dtype, Matrix, Shape};

use super::arrange::Factors;
use super::magnitude::Magnitudes;

/// Whether an adapter is rounded as the weights that it changes are, or kept as exact as its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdapterPrecision {
    /// To 8 bits beside quantised weights.
    LikeBase,
    /// As floats of 32 bits.
    Exact,
}

/// Adds `up × down` to a matrix, and scales its rows.
pub(super) struct LowRank {
    /// From inputs to a few numbers.
    pub(super) down: Matrix,
    /// From those to outputs.
    pub(super) up: Matrix,
    /// What rows of the changed matrix are scaled to in the end.
    pub(super) magnitudes: Option<Magnitudes>,
}

impl LowRank {
    /// An update in the format that suits a base of this format; `None` where a number is too large for it.
    pub(super) fn new(factors: &Factors, base: Dtype, precision: AdapterPrecision) -> Option<LowRank> {
        let Factors { rank, down, up, magnitude } = factors;
        let magnitudes = magnitude.clone().map(Magnitudes::new);
        let (inputs, outputs) = (down.len() / rank, up.len() / rank);
        let block = Dtype::Q8_0.block_elements();
        let rounded = precision == AdapterPrecision::LikeBase && !base.is_float() && inputs.is_multiple_of(block);
        if !rounded {
            return Some(LowRank {
                down: stored(Dtype::F32, down, Shape { rows: *rank, columns: inputs })?,
                up: stored(Dtype::F32, up, Shape { rows: outputs, columns: *rank })?,
                magnitudes,
            });
        }
        // Rows are whole blocks: zeros change nothing.
        let padded = rank.next_multiple_of(block);
        let mut wide = vec![0.0; outputs * padded];
        up.chunks_exact(*rank)
            .zip(wide.chunks_exact_mut(padded))
            .for_each(|(row, out)| out[..*rank].copy_from_slice(row));
        Some(LowRank {
            down: stored(Dtype::Q8_0, down, Shape { rows: padded, columns: inputs })?,
            up: stored(Dtype::Q8_0, &wide, Shape { rows: outputs, columns: padded })?,
            magnitudes,
        })
    }

    /// Finds what outputs are scaled with, from the matrix that it changes.
    pub(super) fn see(&self, base: &Matrix) {
        self.magnitudes.iter().for_each(|magnitudes| magnitudes.see(base, (&self.down, &self.up)));
    }

    /// Whether it can be computed without having seen the matrix that it changes.
    pub(super) fn is_complete(&self) -> bool {
        self.magnitudes.as_ref().is_none_or(Magnitudes::are_known)
    }

    /// What it takes in memory.
    pub(super) fn bytes(&self) -> u64 {
        self.down.bytes()
            + self.up.bytes()
            + self.magnitudes.as_ref().map_or(0, |magnitudes| 8 * magnitudes.learned().len() as u64)
    }

    /// Products that are added up for one row.
    pub(super) fn multiply_adds(&self) -> u64 {
        [&self.down, &self.up].map(|matrix| matrix.operations(1) / 2).iter().sum()
    }

    /// The part of it that makes these outputs.
    pub(super) fn up_rows(&self, outputs: Range<usize>) -> Matrix {
        if outputs.len() == self.up.shape().rows { self.up.clone() } else { self.up.rows(outputs) }
    }

    /// Adds the update to rows of the base, from `first_row` on.
    pub(super) fn merge(&self, first_row: usize, columns: usize, rows: &mut [f32]) {
        let rank = self.up.shape().columns;
        let mut down = vec![0.0; rank * columns];
        down.chunks_exact_mut(columns).enumerate().for_each(|(row, out)| self.down.decode_row(row, out));
        let mut weights = vec![0.0; rank];
        for (row, out) in (first_row..).zip(rows.chunks_exact_mut(columns)) {
            self.up.decode_row(row, &mut weights);
            add_weighted(&weights, &down, out);
            if let Some(magnitudes) = &self.magnitudes {
                let scale = magnitudes.scales()[row];
                out.iter_mut().for_each(|value| *value *= scale);
            }
        }
    }
}

/// out += the rows of `all`, each times its weight.
pub(super) fn add_weighted(weights: &[f32], all: &[f32], out: &mut [f32]) {
    for (weight, row) in weights.iter().zip(all.chunks_exact(out.len())) {
        out.iter_mut().zip(row).for_each(|(out, value)| *out += weight * value);
    }
}

/// A matrix in memory, its rows interleaved where the format allows that; `None` where a number is too large for it. Rows
/// that are not there are zeros.
pub(super) fn stored(dtype: Dtype, values: &[f32], shape: Shape) -> Option<Matrix> {
    let mut bytes = vec![0; dtype.row_bytes(values.len() as u64)? as usize];
    quantize(dtype, values, None, &mut bytes).ok()?;
    // Zeros are zeros in every format.
    bytes.resize(dtype.row_bytes((shape.rows * shape.columns) as u64)? as usize, 0);
    Some(Matrix::new(Arc::new(bytes), dtype, shape).ok()?.interleaved())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_and_exact_updates_are_alike() {
        let number = |at: usize| ((at * 37 % 101) as f32 - 50.0) / 100.0;
        let (rank, inputs, outputs) = (3, 64, 5);
        let factors = Factors {
            rank,
            down: (0..rank * inputs).map(number).collect(),
            up: (0..rank * outputs).map(|at| number(at + 7)).collect(),
            magnitude: None,
        };
        let merged = |base: Dtype| {
            let mut rows = vec![0.0; outputs * inputs];
            let update = LowRank::new(&factors, base, AdapterPrecision::LikeBase).expect("small numbers");
            update.merge(0, inputs, &mut rows);
            rows
        };
        let (exact, rounded) = (merged(Dtype::F32), merged(Dtype::Q4_K));
        let expected = |at: usize| {
            (0..rank).map(|k| factors.up[at / inputs * rank + k] * factors.down[k * inputs + at % inputs]).sum::<f32>()
        };
        for (at, (exact, rounded)) in exact.iter().zip(&rounded).enumerate() {
            assert!((exact - expected(at)).abs() < 1e-6 && (rounded - exact).abs() < 0.01, "{at}: {exact} {rounded}");
        }
    }
}
