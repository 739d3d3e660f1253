//! From tokens to hidden states.

use cascadia_kernels::{Matrix, Shape};

use crate::catalog::Catalog;
use crate::norm::Norm;
use crate::step::Step;
use crate::{ModelError, ModelSpec, StageError, assemble};

/// What turns tokens into hidden states.
pub(crate) struct Embedding {
    pub(crate) tokens: Matrix,
    positions: Option<Positions>,
    texts: Option<Matrix>,
    scale: f32,
    norm: Option<Norm>,
}

/// Learned embeddings of positions.
struct Positions {
    rows: Matrix,
    /// The row of the first token.
    first: usize,
}

impl Embedding {
    /// Finds the embeddings in the model's files.
    pub(crate) fn new(catalog: &Catalog<'_>, spec: &ModelSpec) -> Result<Embedding, ModelError> {
        let rows = |name: &str, rows| catalog.matrix(name, Shape { rows, columns: spec.width });
        let positions = spec.embedding.positions.map(|positions| -> Result<Positions, ModelError> {
            Ok(Positions { rows: rows("position_embd.weight", positions.rows)?, first: positions.first })
        });
        let texts = spec.embedding.texts.map(|texts| rows("token_types.weight", texts));
        let norm = spec.embedding.normed.then(|| Norm::new(catalog, "token_embd_norm", spec.width, spec.norm));
        Ok(Embedding {
            tokens: assemble::vocabulary_matrix(catalog, "token_embd.weight", spec)?,
            positions: positions.transpose()?,
            texts: texts.transpose()?,
            scale: spec.embedding.scale,
            norm: norm.transpose()?,
        })
    }

    /// Numbers in a hidden state.
    pub(crate) fn width(&self) -> usize {
        self.tokens.shape().columns
    }

    /// out = the embeddings of the plan's tokens, which must be of the vocabulary.
    pub(crate) fn run(&self, out: &mut [f32], spare: &mut Vec<f32>, step: &Step<'_>) -> Result<(), StageError> {
        let (plan, Shape { rows: vocabulary, columns: width }) = (step.plan, self.tokens.shape());
        if let Some(token) = plan.tokens.iter().find(|token| **token as usize >= vocabulary) {
            return Err(StageError::Plan { problem: format!("token {token} of a vocabulary of {vocabulary}") });
        }
        for (row, &token) in out.chunks_exact_mut(width).zip(&plan.tokens) {
            self.tokens.decode_row(token as usize, row);
        }
        step.adapters.embed(out, step);
        if self.scale != 1.0 {
            out.iter_mut().for_each(|number| *number *= self.scale);
        }
        if let Some(texts) = &self.texts {
            let [mut first, mut second] = [vec![0.0; width], vec![0.0; width]];
            texts.decode_row(0, &mut first);
            texts.decode_row(texts.shape().rows.min(2) - 1, &mut second);
            let places = step.places.sequences.iter().zip(&step.places.positions);
            for (row, (&sequence, position)) in out.chunks_exact_mut(width).zip(places) {
                let is_second = plan.steps[sequence as usize].second_text.is_some_and(|start| start <= *position);
                step.ops.rows.add(if is_second { &second } else { &first }, row);
            }
        }
        if let Some(Positions { rows, first }) = &self.positions {
            spare.resize(width, 0.0);
            for (row, &position) in out.chunks_exact_mut(width).zip(&step.places.positions) {
                let learned = rows.shape().rows - first;
                if position as usize >= learned {
                    let problem = format!("position {position} of {learned} that were learned");
                    return Err(StageError::Plan { problem });
                }
                rows.decode_row(first + position as usize, spare);
                step.ops.rows.add(spare, row);
            }
        }
        if let Some(norm) = &self.norm {
            norm.apply_in_place(out, spare, step);
        }
        Ok(())
    }
}
