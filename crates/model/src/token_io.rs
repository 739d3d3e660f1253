//! Both ends of the model: tokens to hidden states, hidden states to logits.

use std::sync::Arc;

use cascadia_kernels::Activations;
use cascadia_weights::ModelFiles;

use crate::adapter::AdapterRows;
use crate::altup_ends::AltUpEnds;
use crate::classifier::Classifier;
use crate::embedding::Embedding;
use crate::norm::Norm;
use crate::plan::RowPlaces;
use crate::projection::Projection;
use crate::{Compute, Hidden, Kind, LoadOptions, ModelError, ModelSpec, Place, StageError, StepPlan, arch, assemble};

/// Why a model without a head makes no logits.
const NO_TEXT: &str = "the model is an encoder, which makes embeddings and no text; use `cascadia embed`";

/// Embedding, final norm and output matrix. It stays where the tokens are.
pub struct TokenIo {
    files: Arc<ModelFiles>,
    embedding: Embedding,
    /// Rows on their way through the embedding's norm.
    spare: Vec<f32>,
    altup: Option<AltUpEnds>,
    norm: Option<Norm>,
    head: Option<Head>,
    classifier: Option<Classifier>,
    rows_per_step: usize,
    /// Rows of a step that were asked for, side by side.
    gathered: Vec<f32>,
    normed: Activations,
    places: RowPlaces,
    adapters: AdapterRows,
    compute: Compute,
}

/// What makes logits of hidden states.
struct Head {
    output: Projection,
    scale: f32,
    soft_cap: Option<f32>,
}

impl TokenIo {
    /// Finds both ends in the model's files.
    pub fn new(files: &Arc<ModelFiles>, spec: &ModelSpec, options: &LoadOptions) -> Result<TokenIo, ModelError> {
        let catalog = arch::catalog(files)?;
        let rows_per_step = options.limits.rows_per_step as usize;
        let embedding = Embedding::new(&catalog, spec)?;
        let head = spec.head.as_ref().map(|head| -> Result<Head, ModelError> {
            let (output, output_name) = match head.tied {
                true => (embedding.tokens.clone(), "token_embd.weight"),
                false => (assemble::vocabulary_matrix(&catalog, "output.weight", spec)?, "output.weight"),
            };
            let bias = head.bias.then(|| catalog.require_vector("output.bias", spec.vocabulary)).transpose()?;
            let output = Projection::new(output_name, output, bias).measured(options.stats.as_ref());
            Ok(Head { output: output.adapted_as("output.weight"), scale: head.scale, soft_cap: head.soft_cap })
        });
        let head = head.transpose()?;
        let altup = spec.altup.map(|altup| AltUpEnds::new(&catalog, &altup, spec.width, options));
        let norm = spec.final_norm.then(|| Norm::new(&catalog, "output_norm", spec.width, spec.norm));
        let classifier = spec.pooling.classifier.map(|classifier| Classifier::new(&catalog, spec, classifier));
        Ok(TokenIo {
            files: Arc::clone(files),
            embedding,
            spare: Vec::new(),
            altup: altup.transpose()?,
            norm: norm.transpose()?,
            head,
            classifier: classifier.transpose()?,
            rows_per_step,
            gathered: Vec::with_capacity(rows_per_step * spec.width),
            normed: options.activations(rows_per_step, spec.width),
            places: RowPlaces::with_capacity(rows_per_step),
            adapters: options.adapter_rows(),
            compute: options.compute(),
        })
    }

    /// hidden = the embeddings of the plan's tokens.
    pub fn embed(&mut self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        let rows = plan.tokens.len();
        hidden.width = self.hidden_width();
        hidden.values.resize(rows * hidden.width, 0.0);
        self.places.all(plan);
        self.adapters.fill(plan, &self.places);
        let step = self.compute.step(plan, (&self.places, &[], &self.adapters));
        step.profile.begin(Place::Ends);
        match &mut self.altup {
            None => self.embedding.run(&mut hidden.values, &mut self.spare, &step)?,
            Some(altup) => {
                self.embedding.run(altup.embedded(rows), &mut self.spare, &step)?;
                altup.begin(&mut hidden.values, &step);
            }
        }
        step.profile.mark(Kind::Embedding);
        self.adapters.release();
        Ok(self.files.check_intact()?)
    }

    /// out = the logits of some rows of the step that `hidden` went through, in the order asked for, `rows × vocabulary`.
    pub fn logits(
        &mut self,
        plan: &StepPlan,
        hidden: &Hidden,
        rows: &[u32],
        out: &mut Vec<f32>,
    ) -> Result<(), StageError> {
        self.normalise(plan, hidden, rows)?;
        let step = self.compute.step(plan, (&self.places, &[], &self.adapters));
        let Some(Head { output, scale, soft_cap }) = &self.head else {
            return Err(StageError::Plan { problem: NO_TEXT.to_owned() });
        };
        let vocabulary = output.outputs();
        out.resize(rows.len() * vocabulary, 0.0);
        output.apply(&mut self.normed, out, &step);
        if *scale != 1.0 {
            out.iter_mut().for_each(|logit| *logit *= scale);
        }
        if let Some(cap) = *soft_cap {
            step.pool.chunks(out, vocabulary, |_, _, logits| step.ops.rows.soft_cap(cap, logits));
        }
        step.profile.mark(Kind::Output);
        self.adapters.release();
        Ok(self.files.check_intact()?)
    }

    /// out = some rows of `hidden` after the final norm, in the order asked for, `rows × width`.
    pub fn normed(
        &mut self,
        plan: &StepPlan,
        hidden: &Hidden,
        rows: &[u32],
        out: &mut Vec<f32>,
    ) -> Result<(), StageError> {
        self.normalise(plan, hidden, rows)?;
        out.clear();
        let normed = self.normed.float();
        (0..rows.len()).for_each(|row| out.extend_from_slice(normed.row(row)));
        self.adapters.release();
        Ok(self.files.check_intact()?)
    }

    /// What the model says of a text whose hidden states became this row; `None` where it says nothing.
    pub fn classify(&mut self, row: &[f32]) -> Result<Option<Vec<f32>>, StageError> {
        let Some(classifier) = &mut self.classifier else { return Ok(None) };
        let nothing = StepPlan::default();
        self.places.all(&nothing);
        self.adapters.fill(&nothing, &self.places);
        let said = classifier.run(row, &self.compute.step(&nothing, (&self.places, &[], &self.adapters)));
        self.adapters.release();
        self.files.check_intact()?;
        Ok(Some(said))
    }

    /// normed = some rows of `hidden` after the final norm.
    fn normalise(&mut self, plan: &StepPlan, hidden: &Hidden, rows: &[u32]) -> Result<(), StageError> {
        let width = self.embedding.width();
        let row_width = self.hidden_width();
        let held = hidden.values.len() / row_width;
        let known = rows.iter().all(|&row| (row as usize) < held);
        if hidden.width != row_width || rows.is_empty() || !known || rows.len() > self.rows_per_step {
            let asked = (rows.len(), rows.iter().max());
            return Err(StageError::Plan { problem: format!("{asked:?} rows and last row, of a step with {held}") });
        }
        self.places.select(plan, rows);
        self.adapters.fill(plan, &self.places);
        let step = self.compute.step(plan, (&self.places, &[], &self.adapters));
        step.profile.begin(Place::Ends);
        self.gathered.clear();
        match &mut self.altup {
            None => {
                for row in rows.iter().map(|&row| row as usize) {
                    self.gathered.extend_from_slice(&hidden.values[row * width..(row + 1) * width]);
                }
            }
            Some(altup) => {
                altup.merge(&hidden.values, rows, &mut self.gathered, &step);
                step.profile.mark(Kind::AltUp);
            }
        }
        let normed = self.normed.reset(rows.len(), width);
        match &self.norm {
            Some(norm) => norm.apply(&self.gathered, normed, &step),
            None => normed.copy_from_slice(&self.gathered),
        }
        step.profile.mark(Kind::Norm);
        Ok(())
    }

    /// Numbers in a row of hidden states.
    fn hidden_width(&self) -> usize {
        self.altup.as_ref().map_or(self.embedding.width(), AltUpEnds::hidden_width)
    }
}
