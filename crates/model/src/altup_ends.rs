//! Where streams begin and end: an embedding becomes several, and several become what logits are made from.

use cascadia_kernels::{Activations, Matrix, Shape};

use crate::catalog::Catalog;
use crate::projection::Projection;
use crate::spec::AltUpSpec;
use crate::step::Step;
use crate::{LoadOptions, ModelError};

/// The mean square below which a projection is not scaled up any further.
const LEAST_SQUARE: f32 = 1e-5;

/// Projections of every stream but the first, whose magnitude all others are given.
pub(crate) struct AltUpEnds {
    into: Vec<Projection>,
    out: Vec<Projection>,
    width: usize,
    /// Rows of one stream.
    stream: Activations,
    /// What a projection makes of them.
    projected: Vec<f32>,
}

impl AltUpEnds {
    /// Finds the projections in the model's files.
    pub(crate) fn new(
        catalog: &Catalog<'_>,
        spec: &AltUpSpec,
        width: usize,
        options: &LoadOptions,
    ) -> Result<AltUpEnds, ModelError> {
        let (rows, stats) = (options.limits.rows_per_step as usize, options.stats.as_ref());
        let others = spec.count - 1;
        let projections = |name: &str| -> Result<Vec<Projection>, ModelError> {
            let matrices = match others {
                0 => Vec::new(),
                _ => catalog.experts(name, others, Shape { rows: width, columns: width })?,
            };
            let projection =
                |(index, matrix): (usize, Matrix)| Projection::new(name, matrix, None).measured_as(index, stats);
            Ok(matrices.into_iter().enumerate().map(projection).collect())
        };
        Ok(AltUpEnds {
            into: projections("altup_proj.weight")?,
            out: projections("altup_unembd_proj.weight")?,
            width,
            stream: options.activations(rows, width),
            projected: Vec::with_capacity(rows * width),
        })
    }

    /// Numbers in a row of hidden states.
    pub(crate) fn hidden_width(&self) -> usize {
        self.width * (1 + self.into.len())
    }

    /// Room for the embeddings of so many rows, which `begin` spreads.
    pub(crate) fn embedded(&mut self, rows: usize) -> &mut [f32] {
        self.stream.reset(rows, self.width)
    }

    /// hidden = for each row its embedding and the projections of that.
    pub(crate) fn begin(&mut self, hidden: &mut [f32], step: &Step<'_>) {
        let (width, row_width) = (self.width, self.hidden_width());
        let AltUpEnds { into, stream, projected, .. } = self;
        let embedded = stream.float();
        step.pool.chunks(hidden, row_width, |_, row, out| out[..width].copy_from_slice(embedded.row(row)));
        for (index, projection) in into.iter().enumerate() {
            projected.resize(hidden.len() / row_width * width, 0.0);
            projection.apply(stream, projected, step);
            step.pool.chunks(hidden, row_width, |_, row, out| {
                let (first, others) = out.split_at_mut(width);
                let own = &mut others[index * width..(index + 1) * width];
                own.copy_from_slice(&projected[row * width..(row + 1) * width]);
                step.ops.rows.match_magnitude(first, LEAST_SQUARE, own);
            });
        }
    }

    /// merged = for each of some rows of `hidden`, the mean of its first stream and of the projections of the others.
    pub(crate) fn merge(&mut self, hidden: &[f32], rows: &[u32], merged: &mut Vec<f32>, step: &Step<'_>) {
        let (width, row_width, count) = (self.width, self.hidden_width(), rows.len());
        let AltUpEnds { out, stream, projected, .. } = self;
        let part = |row: usize, index: usize| {
            let start = rows[row] as usize * row_width + index * width;
            &hidden[start..start + width]
        };
        merged.resize(count * width, 0.0);
        step.pool.chunks(merged, width, |_, row, out| out.copy_from_slice(part(row, 0)));
        for (index, projection) in out.iter().enumerate() {
            let own = stream.reset(count, width);
            step.pool.chunks(own, width, |_, row, out| out.copy_from_slice(part(row, index + 1)));
            projected.resize(count * width, 0.0);
            projection.apply(stream, projected, step);
            step.pool.chunks(projected, width, |_, row, own| {
                step.ops.rows.match_magnitude(part(row, 0), LEAST_SQUARE, own);
            });
            step.pool.chunks(merged, width, |_, row, out| {
                step.ops.rows.add(&projected[row * width..(row + 1) * width], out);
            });
        }
        let share = 1.0 / (1 + out.len()) as f32;
        merged.iter_mut().for_each(|number| *number *= share);
    }
}
