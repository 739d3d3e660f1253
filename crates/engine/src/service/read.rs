//! Reads the rows of a step that somebody wants: chooses tokens, sums up embeddings.

use std::time::Instant;

use super::active_job::{ActiveJob, ActiveTask};
use super::run::Runner;
use super::schedule::{Advance, Part, Plan};
use crate::LOGITS_AT_ONCE;

/// A part of a step while its rows are read.
struct Reading {
    tokens: Vec<u32>,
    /// No further row counts: a guess was wrong, or the answer has ended.
    closed: bool,
    ended: bool,
    failed: bool,
    /// Guesses that were right.
    right: usize,
}

impl Runner {
    /// What came of every part of a plan whose rows are computed.
    pub(super) fn read(&mut self, plan: &Plan) -> Vec<Advance> {
        let reading = |_: &Part| Reading { tokens: Vec::new(), closed: false, ended: false, failed: false, right: 0 };
        let mut readings: Vec<Reading> = plan.parts.iter().map(reading).collect();
        self.read_answers(plan, &mut readings);
        for (part, reading) in plan.parts.iter().zip(&mut readings) {
            self.read_embedding(plan, part, reading);
            if let Some(live) = self.jobs.get_mut(&part.id) {
                live.speculator.learn(part.drafted as usize, reading.right);
            }
            // Nobody waits for it any more.
            reading.ended |= !self.jobs.contains_key(&part.id);
        }
        readings.into_iter().map(Reading::result).collect()
    }

    /// Chooses tokens from the rows that answers want, a bounded number of logits at a time.
    fn read_answers(&mut self, plan: &Plan, readings: &mut [Reading]) {
        let answers =
            |part: &Part| matches!(self.jobs.get(&part.id), Some(ActiveJob { task: ActiveTask::Answer(_), .. }));
        let parts = plan.parts.iter().enumerate().filter(|(_, part)| answers(part));
        let wanted: Vec<(usize, u32)> =
            parts.flat_map(|(index, part)| part.wanted.clone().map(move |row| (index, row))).collect();
        let vocabulary = self.pipeline.spec().vocabulary.max(1);
        for piece in wanted.chunks((LOGITS_AT_ONCE / vocabulary).max(1)) {
            let rows: Vec<u32> = piece.iter().map(|(_, row)| *row).collect();
            let mut logits = std::mem::take(&mut self.logits);
            let begin = Instant::now();
            let computed = self.pipeline.logits(&plan.step, &rows, &mut logits);
            self.counted.output_seconds += begin.elapsed().as_secs_f64();
            match computed {
                Ok(()) => {
                    for ((index, row), logits) in piece.iter().zip(logits.chunks_exact(vocabulary)) {
                        self.read_row(plan, (&plan.parts[*index], *row), logits, &mut readings[*index]);
                    }
                }
                Err(error) => {
                    let first = &plan.parts[piece[0].0];
                    piece.iter().for_each(|(index, _)| readings[*index].failed = true);
                    if plan.parts.len() == 1 {
                        self.fail(first.id, error);
                    }
                }
            }
            self.logits = logits;
        }
    }

    /// Chooses the token after one row, if all guesses before it were right.
    fn read_row(&mut self, plan: &Plan, (part, row): (&Part, u32), logits: &[f32], reading: &mut Reading) {
        let Some(live) = self.jobs.get_mut(&part.id).filter(|_| !reading.closed && !reading.failed) else { return };
        let progress = live.choose(logits);
        reading.tokens.extend(progress.token);
        self.counted.generated_tokens += u64::from(progress.token.is_some());
        let guess = (row + 1 < part.rows.end).then(|| plan.step.tokens[row as usize + 1]);
        let right = guess.is_some() && guess == progress.token;
        self.counted.accepted_tokens += u64::from(right);
        reading.right += usize::from(right);
        reading.closed = !right;
        if let Some(ending) = progress.ending {
            reading.closed = true;
            reading.ended = true;
            if let Some(live) = self.jobs.remove(&part.id) {
                self.count(&live, ending);
            }
        }
    }

    /// Adds the rows of a part to its embedding, and ends it after the last.
    fn read_embedding(&mut self, plan: &Plan, part: &Part, reading: &mut Reading) {
        let Some(ActiveJob { task: ActiveTask::Embedding(embedding), prompt_tokens, .. }) = self.jobs.get_mut(&part.id)
        else {
            return;
        };
        if part.position == 0 {
            embedding.restart();
        }
        let rows: Vec<u32> = part.wanted.clone().collect();
        if let Err(error) = self.pipeline.normed(&plan.step, &rows, &mut self.logits) {
            reading.failed = true;
            if plan.parts.len() == 1 {
                self.fail(part.id, error);
            }
            return;
        }
        self.logits.chunks_exact(self.pipeline.spec().width).for_each(|row| embedding.add(row));
        if part.position as usize + rows.len() == *prompt_tokens {
            reading.ended = true;
            if let Some(mut live) = self.jobs.remove(&part.id) {
                let ending = live.embed();
                self.count(&live, ending);
            }
        }
    }
}

impl Reading {
    fn result(self) -> Advance {
        match self {
            Reading { ended: true, tokens, .. } => Advance::Finished(tokens),
            Reading { failed: true, tokens, .. } if tokens.is_empty() => Advance::Again,
            Reading { tokens, .. } => Advance::Computed(tokens),
        }
    }
}
