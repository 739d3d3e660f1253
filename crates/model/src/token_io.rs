//! Both ends of the model: tokens to hidden states, hidden states to logits.

use std::sync::Arc;

use cascadia_kernels::{Activations, Shape};
use cascadia_weights::ModelFiles;

use crate::altup_ends::AltUpEnds;
use crate::embedding::Embedding;
use crate::norm::Norm;
use crate::projection::Projection;
use crate::{Compute, Hidden, Kind, LoadOptions, ModelError, ModelSpec, Place, StageError, StepPlan, arch, assemble};

/// Embedding, final norm and output matrix. It stays where the tokens are.
pub struct TokenIo {
    files: Arc<ModelFiles>,
    embedding: Embedding,
    /// Rows on their way through the embedding's norm.
    spare: Vec<f32>,
    streams: Option<AltUpEnds>,
    norm: Norm,
    output: Projection,
    scale: f32,
    soft_cap: Option<f32>,
    rows_per_step: usize,
    /// Rows of a step that were asked for, side by side.
    gathered: Vec<f32>,
    normed: Activations,
    compute: Compute,
}

impl TokenIo {
    /// Finds both ends in the model's files.
    pub fn new(files: &Arc<ModelFiles>, spec: &ModelSpec, options: &LoadOptions) -> Result<TokenIo, ModelError> {
        let catalog = arch::catalog(files)?;
        let rows_per_step = options.limits.rows_per_step as usize;
        let embedding = Embedding::new(&catalog, spec)?;
        let (output, output_name) = match spec.head.tied {
            true => (embedding.tokens.clone(), "token_embd.weight"),
            false => (assemble::vocabulary_matrix(&catalog, "output.weight", spec)?, "output.weight"),
        };
        let tap = options.meter.as_ref().map(|meter| meter.tap(output_name, 1, spec.width));
        let streams = spec
            .streams
            .map(|streams| AltUpEnds::new(&catalog, &streams, (spec.width, rows_per_step), options.meter.as_ref()));
        let bias = spec.head.bias.then(|| catalog.require_vector("output.bias", spec.vocabulary)).transpose()?;
        Ok(TokenIo {
            files: Arc::clone(files),
            embedding,
            spare: Vec::new(),
            streams: streams.transpose()?,
            norm: Norm::new(&catalog, "output_norm", spec.width, spec.norm)?,
            output: Projection { matrix: output, bias, tap },
            scale: spec.head.scale,
            soft_cap: spec.head.soft_cap,
            rows_per_step,
            gathered: Vec::with_capacity(rows_per_step * spec.width),
            normed: Activations::with_capacity(rows_per_step, spec.width),
            compute: options.compute(),
        })
    }

    /// hidden = the embeddings of the plan's tokens.
    pub fn embed(&mut self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        self.compute.profile.begin(Place::Ends);
        let rows = plan.tokens.len();
        hidden.width = self.hidden_width();
        hidden.values.resize(rows * hidden.width, 0.0);
        match &mut self.streams {
            None => self.embedding.run(plan, &mut hidden.values, &mut self.spare, &self.compute)?,
            Some(streams) => {
                self.embedding.run(plan, streams.embedded(rows), &mut self.spare, &self.compute)?;
                streams.begin(&mut hidden.values, &self.compute);
            }
        }
        self.compute.profile.mark(Kind::Embedding);
        Ok(self.files.check_intact()?)
    }

    /// out = the logits of some rows of `hidden`, in the order asked for, `rows × vocabulary`.
    pub fn logits(&mut self, hidden: &Hidden, rows: &[u32], out: &mut Vec<f32>) -> Result<(), StageError> {
        self.normalise(hidden, rows)?;
        let profile = &self.compute.profile;
        let Shape { rows: vocabulary, .. } = self.output.matrix.shape();
        out.resize(rows.len() * vocabulary, 0.0);
        self.output.apply(&mut self.normed, out, &self.compute);
        if self.scale != 1.0 {
            out.iter_mut().for_each(|logit| *logit *= self.scale);
        }
        if let Some(cap) = self.soft_cap {
            self.compute.pool.chunks(out, vocabulary, |_, _, logits| self.compute.ops.rows.soft_cap(cap, logits));
        }
        profile.mark(Kind::Output);
        Ok(self.files.check_intact()?)
    }

    /// out = some rows of `hidden` after the final norm, in the order asked for, `rows × width`.
    pub fn normed(&mut self, hidden: &Hidden, rows: &[u32], out: &mut Vec<f32>) -> Result<(), StageError> {
        self.normalise(hidden, rows)?;
        out.clear();
        let normed = self.normed.float();
        (0..rows.len()).for_each(|row| out.extend_from_slice(normed.row(row)));
        Ok(self.files.check_intact()?)
    }

    /// normed = some rows of `hidden` after the final norm.
    fn normalise(&mut self, hidden: &Hidden, rows: &[u32]) -> Result<(), StageError> {
        let Shape { columns: width, .. } = self.output.matrix.shape();
        let row_width = self.hidden_width();
        let held = hidden.values.len() / row_width;
        let known = rows.iter().all(|&row| (row as usize) < held);
        if hidden.width != row_width || rows.is_empty() || !known || rows.len() > self.rows_per_step {
            let asked = (rows.len(), rows.iter().max());
            return Err(StageError::Plan { problem: format!("{asked:?} rows and last row, of a step with {held}") });
        }
        self.compute.profile.begin(Place::Ends);
        self.gathered.clear();
        match &mut self.streams {
            None => {
                for row in rows.iter().map(|&row| row as usize) {
                    self.gathered.extend_from_slice(&hidden.values[row * width..(row + 1) * width]);
                }
            }
            Some(streams) => {
                streams.merge(&hidden.values, rows, &mut self.gathered, &self.compute);
                self.compute.profile.mark(Kind::Streams);
            }
        }
        self.norm.apply(&self.gathered, self.normed.reset(rows.len(), width), &self.compute);
        self.compute.profile.mark(Kind::Norm);
        Ok(())
    }

    /// Numbers in a row of hidden states.
    fn hidden_width(&self) -> usize {
        self.streams.as_ref().map_or(self.embedding.width(), AltUpEnds::hidden_width)
    }
}
