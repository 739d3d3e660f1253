//! Hidden states of several streams, of which a layer computes one and predicts the others.
//!
//! A row holds its streams one after the other. What streams take over from each other is for every row a small matrix,
//! which a router makes from the stream that layers compute.

use cascadia_kernels::{CachedRows, Stored};

use crate::norm::Norm;
use crate::projection::Projection;
use crate::step::Step;
use crate::workspace::Workspace;
use crate::{Kind, ModelSpec};

/// What a layer does around its branches.
pub(crate) struct LayerAltUp {
    pub(crate) count: usize,
    pub(crate) active: usize,
    pub(crate) router_norm: Norm,
    /// From a stream to a number for each of them.
    pub(crate) router: Projection,
    /// From those numbers to how much of every stream is added to every other.
    pub(crate) prediction: Projection,
    /// From those numbers to how much every stream is corrected, less one.
    pub(crate) correction: Projection,
    /// What the corrected stream is multiplied with before an input of the layer's own gates it.
    pub(crate) scale: Option<Vec<f32>>,
}

/// Buffers of a layer with streams.
pub(crate) struct AltUpWorkspace {
    /// The stream that the layer computes.
    pub(crate) active: Vec<f32>,
    /// What `prediction` or `correction` makes of every row.
    weights: Vec<f32>,
    /// Per thread, one row of hidden states.
    rows: Vec<Vec<f32>>,
}

impl AltUpWorkspace {
    /// Room for `rows` rows where the model has streams.
    pub(crate) fn new(spec: &ModelSpec, rows: usize, threads: usize) -> AltUpWorkspace {
        let (count, width) = spec.altup.map_or((0, 0), |streams| (streams.count, spec.width));
        AltUpWorkspace {
            active: Vec::with_capacity(rows * width),
            weights: Vec::with_capacity(rows * count * count),
            rows: vec![vec![0.0; count * width]; threads],
        }
    }
}

impl LayerAltUp {
    /// Replaces all streams by their predictions; `active` becomes that of the stream which the layer computes.
    pub(crate) fn predict(
        &self,
        step: &Step<'_>,
        hidden: &mut [f32],
        active: &mut Vec<f32>,
        workspace: &mut Workspace,
    ) {
        let (count, width) = (self.count, self.width());
        active.resize(hidden.len() / count, 0.0);
        self.copy_active(step, hidden, active);
        self.route(step, active, &self.prediction, workspace);
        let AltUpWorkspace { weights, rows, .. } = &mut workspace.altup;
        step.pool.chunks_with(hidden, count * width, rows, |_, row, streams, before| {
            before.copy_from_slice(streams);
            let weights = &weights[row * count * count..(row + 1) * count * count];
            step.ops.attention.mix(weights, count, CachedRows::new(Stored::F32(before), width), streams);
        });
        self.copy_active(step, hidden, active);
        step.profile.mark(Kind::AltUp);
    }

    /// Corrects all streams by what `active`, as the layer has computed it, differs from its prediction; `active` becomes
    /// what inputs of single layers see.
    pub(crate) fn correct(&self, step: &Step<'_>, hidden: &mut [f32], active: &mut [f32], workspace: &mut Workspace) {
        let (count, width) = (self.count, self.width());
        self.route(step, active, &self.correction, workspace);
        let AltUpWorkspace { weights, rows, .. } = &mut workspace.altup;
        weights.iter_mut().for_each(|weight| *weight += 1.0);
        step.pool.chunks_with(hidden, count * width, rows, |_, row, streams, lack| {
            let lack = &mut lack[..width];
            let predicted = &streams[self.active * width..(self.active + 1) * width];
            let computed = &active[row * width..(row + 1) * width];
            for ((lack, computed), predicted) in lack.iter_mut().zip(computed).zip(predicted) {
                *lack = computed - predicted;
            }
            step.ops.attention.mix(
                &weights[row * count..(row + 1) * count],
                1,
                CachedRows::new(Stored::F32(lack), width),
                streams,
            );
        });
        self.copy_active(step, hidden, active);
        if let Some(scale) = &self.scale {
            step.pool.chunks(active, width, |_, _, row| row.iter_mut().zip(scale).for_each(|(out, by)| *out *= by));
        }
        step.profile.mark(Kind::AltUp);
    }

    /// Adds rows of one stream to every stream but the first.
    pub(crate) fn add_after_first(&self, step: &Step<'_>, hidden: &mut [f32], output: &[f32]) {
        let width = self.width();
        step.pool.chunks(hidden, self.count * width, |_, row, streams| {
            let added = &output[row * width..(row + 1) * width];
            streams.chunks_exact_mut(width).skip(1).for_each(|stream| step.ops.rows.add(added, stream));
        });
        step.profile.mark(Kind::Add);
    }

    /// Leaves in `workspace.altup.weights` what `projection` makes of the router's numbers for rows of one stream.
    fn route(&self, step: &Step<'_>, active: &[f32], projection: &Projection, workspace: &mut Workspace) {
        let Workspace { input, inner, altup: AltUpWorkspace { weights, .. }, .. } = workspace;
        let rows = active.len() / self.width();
        self.router_norm.apply(active, input.reset(rows, self.width()), step);
        let routed = inner.reset(rows, self.count);
        self.router.apply(input, routed, step);
        // Within one of zero: the hyperbolic tangent.
        step.ops.rows.soft_cap(1.0, routed);
        weights.resize(rows * projection.outputs(), 0.0);
        projection.apply(inner, weights, step);
    }

    /// Numbers in a stream.
    fn width(&self) -> usize {
        self.router.inputs()
    }

    fn copy_active(&self, step: &Step<'_>, hidden: &[f32], active: &mut [f32]) {
        let width = self.width();
        step.pool.chunks(active, width, |_, row, out| {
            let start = (row * self.count + self.active) * width;
            out.copy_from_slice(&hidden[start..start + width]);
        });
    }
}
