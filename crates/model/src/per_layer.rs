//! Inputs of single layers: what a layer is given of each token besides its hidden state.
//!
//! They depend on nothing but the tokens of a step, so every stage makes those of its own layers when a step begins,
//! wherever it runs.

use std::ops::Range;

use cascadia_kernels::{Activation, Activations, Matrix, Shape};

use crate::catalog::Catalog;
use crate::embedding::Embedding;
use crate::norm::Norm;
use crate::projection::Projection;
use crate::spec::PerLayerSpec;
use crate::step::Step;
use crate::workspace::Workspace;
use crate::{ActivationStats, Kind, LoadOptions, ModelError, ModelSpec, StageError};

const PROJECTION: &str = "per_layer_model_proj.weight";

/// What makes the inputs of a range of layers.
pub(crate) struct PerLayerInputs {
    embedding: Embedding,
    /// Of every token, the rows of all layers one after the other.
    table: Matrix,
    /// From the embedding of a token to a row for each layer of the range.
    projection: Projection,
    norm: Norm,
    layers: Range<usize>,
    spec: PerLayerSpec,
}

/// What a layer makes of its input: output(activation(gate(x)) × input).
pub(crate) struct PerLayerBranch {
    pub(crate) gate: Projection,
    pub(crate) output: Projection,
    pub(crate) activation: Activation,
    pub(crate) layer: usize,
}

/// The inputs of a step, and buffers to make them.
pub(crate) struct PerLayerWorkspace {
    embedded: Activations,
    projected: Vec<f32>,
    /// Per row of the step, the inputs of all layers of the stage.
    inputs: Vec<f32>,
    /// Per thread, a row of the table.
    table_rows: Vec<Vec<f32>>,
    spare: Vec<f32>,
    /// The layers of the stage.
    layers: Range<usize>,
}

impl PerLayerWorkspace {
    /// Room for the largest step of any range of the model's layers.
    pub(crate) fn new(spec: &ModelSpec, options: &LoadOptions) -> PerLayerWorkspace {
        let (rows, threads) = (options.limits.rows_per_step as usize, options.pool.threads());
        let all = spec.per_layer.map_or(0, |inputs| inputs.width * spec.layers.len());
        let embedded = if all == 0 { 0 } else { rows };
        PerLayerWorkspace {
            embedded: options.activations(embedded, spec.width),
            projected: Vec::with_capacity(rows * all),
            inputs: Vec::with_capacity(rows * all),
            table_rows: vec![vec![0.0; all]; threads],
            spare: Vec::with_capacity(embedded * spec.width),
            layers: 0..0,
        }
    }

    /// What a layer of the stage is given of a row of the step.
    fn input(&self, row: usize, layer: usize, width: usize) -> &[f32] {
        let start = (row * self.layers.len() + layer - self.layers.start) * width;
        &self.inputs[start..start + width]
    }
}

impl PerLayerInputs {
    /// Finds in the model's files what makes the inputs of `layers`.
    pub(crate) fn new(
        catalog: &Catalog<'_>,
        model: &ModelSpec,
        spec: PerLayerSpec,
        (layers, stats): (Range<usize>, Option<&ActivationStats>),
    ) -> Result<PerLayerInputs, ModelError> {
        let (width, all) = (spec.width, spec.width * model.layers.len());
        let projection = catalog.matrix(PROJECTION, Shape { rows: all, columns: model.width })?;
        Ok(PerLayerInputs {
            embedding: Embedding::new(catalog, model)?,
            table: catalog.matrix("per_layer_token_embd.weight", Shape { rows: spec.tokens, columns: all })?,
            projection: Projection::new(PROJECTION, projection.rows(layers.start * width..layers.end * width), None)
                .measured(stats),
            norm: Norm::new(catalog, "per_layer_proj_norm", width, model.norm)?,
            layers,
            spec,
        })
    }

    /// Makes the inputs of a step.
    pub(crate) fn fill(&self, step: &Step<'_>, workspace: &mut PerLayerWorkspace) -> Result<(), StageError> {
        let PerLayerSpec { width, tokens, table_scale, projection_scale, scale, .. } = self.spec;
        let PerLayerWorkspace { embedded, projected, inputs, table_rows, spare, layers } = workspace;
        let (plan, rows, outputs) = (step.plan, step.rows(), self.projection.outputs());
        self.embedding.run(embedded.reset(rows, self.embedding.width()), spare, step)?;
        projected.resize(rows * outputs, 0.0);
        self.projection.apply(embedded, projected, step);
        projected.iter_mut().for_each(|number| *number *= projection_scale);
        inputs.resize(rows * outputs, 0.0);
        self.norm.apply(projected, inputs, step);
        let own = self.layers.start * width..self.layers.end * width;
        step.pool.chunks_with(inputs, outputs, table_rows, |_, row, inputs, table_row| {
            let token = plan.tokens[row] as usize;
            self.table.decode_row(if token < tokens { token } else { 0 }, table_row);
            for (input, number) in inputs.iter_mut().zip(&table_row[own.clone()]) {
                *input = (*input + number * table_scale) * scale;
            }
        });
        *layers = self.layers.clone();
        Ok(())
    }
}

impl PerLayerBranch {
    /// Reads `workspace.input` and the inputs of its layer, leaves the result in `workspace.output`.
    pub(crate) fn run(&self, step: &Step<'_>, workspace: &mut Workspace) {
        let Workspace { input, inner, gate, output, per_layer, .. } = workspace;
        let (rows, width) = (step.rows(), self.gate.outputs());
        gate.resize(rows * width, 0.0);
        self.gate.apply(input, gate, step);
        step.profile.mark(Kind::FeedForwardInput);
        step.pool.chunks(inner.reset(rows, width), width, |_, row, out| {
            out.copy_from_slice(per_layer.input(row, self.layer, width));
            step.ops.rows.activate_multiply(self.activation, &gate[row * width..(row + 1) * width], out);
        });
        step.profile.mark(Kind::Activation);
        output.resize(rows * self.output.outputs(), 0.0);
        self.output.apply(inner, output, step);
        step.profile.mark(Kind::FeedForwardOutput);
    }
}
