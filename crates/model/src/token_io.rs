//! Both ends of the model: tokens to hidden states, hidden states to logits.

use std::ops::Range;
use std::sync::Arc;

use cascadia_kernels::{Activations, Matrix, Shape};
use cascadia_weights::ModelFiles;

use crate::norm::Norm;
use crate::{Hidden, LoadOptions, Machine, ModelError, ModelSpec, StageError, assemble};

/// Embedding, final norm and output matrix. It stays where the tokens are.
pub struct TokenIo {
    files: Arc<ModelFiles>,
    embedding: Matrix,
    norm: Norm,
    /// `None` when the embedding is the output matrix too.
    output: Option<Matrix>,
    rows_per_step: usize,
    normed: Activations,
    machine: Machine,
}

impl TokenIo {
    /// Finds both ends in the model's files.
    pub fn new(files: &Arc<ModelFiles>, spec: &ModelSpec, options: &LoadOptions) -> Result<TokenIo, ModelError> {
        let shape = Shape { rows: spec.vocabulary, columns: spec.width };
        let rows_per_step = options.rows_per_step as usize;
        Ok(TokenIo {
            files: Arc::clone(files),
            embedding: assemble::matrix(files, "token_embd.weight", shape)?,
            norm: assemble::norm(files, "output_norm.weight", spec)?,
            output: if spec.tied_output { None } else { Some(assemble::matrix(files, "output.weight", shape)?) },
            rows_per_step,
            normed: Activations::with_capacity(rows_per_step, spec.width),
            machine: options.machine(),
        })
    }

    /// hidden = the embeddings of `tokens`.
    pub fn embed(&mut self, tokens: &[u32], hidden: &mut Hidden) -> Result<(), StageError> {
        let Shape { rows: vocabulary, columns: width } = self.embedding.shape();
        if let Some(token) = tokens.iter().find(|token| **token as usize >= vocabulary) {
            return Err(StageError::Plan { problem: format!("token {token} of a vocabulary of {vocabulary}") });
        }
        hidden.width = width;
        hidden.values.resize(tokens.len() * width, 0.0);
        for (row, &token) in hidden.values.chunks_exact_mut(width).zip(tokens) {
            self.embedding.decode_row(token as usize, row);
        }
        Ok(self.files.check_intact()?)
    }

    /// out = the logits of some rows of `hidden`, `rows × vocabulary`.
    pub fn logits(&mut self, hidden: &Hidden, rows: Range<usize>, out: &mut Vec<f32>) -> Result<(), StageError> {
        let Shape { rows: vocabulary, columns: width } = self.embedding.shape();
        let held = hidden.values.len() / width;
        if hidden.width != width || rows.is_empty() || rows.end > held || rows.len() > self.rows_per_step {
            return Err(StageError::Plan { problem: format!("logits of rows {rows:?}, where the step has {held}") });
        }
        let source = &hidden.values[rows.start * width..rows.end * width];
        self.norm.apply(source, self.normed.reset(rows.len(), width), &self.machine);
        out.resize(rows.len() * vocabulary, 0.0);
        let output = self.output.as_ref().unwrap_or(&self.embedding);
        output.multiply(&mut self.normed, out, self.machine.ops, &self.machine.pool);
        Ok(self.files.check_intact()?)
    }
}
