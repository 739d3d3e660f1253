//! A job that was accepted: its state, and the sink of its updates.

use std::sync::Arc;
use std::time::Instant;

use cascadia_model::Adapter;

use super::answer::{Answer, Choice};
use super::embedding::Embedding;
use super::scores::Scores;
use super::speculate::{Proposal, Speculator};
use super::{JobOutcome, JobSink, NewToken, Tenant, Update};
use crate::{AdapterHandle, EngineError, FinishReason, Flow};

/// A job between its submission and its last update.
pub(super) struct ActiveJob {
    pub(super) task: ActiveTask,
    pub(super) sink: JobSink,
    pub(super) tenant: Tenant,
    pub(super) adapter: Option<AdapterHandle>,
    /// The weights of its adapter while it runs.
    pub(super) weights: Option<Arc<Adapter>>,
    pub(super) prompt_tokens: usize,
    pub(super) reused_tokens: usize,
    /// Tokens that are known at the start, until they are reported; and why the answer ends with them, if it does.
    pub(super) known: (Vec<NewToken>, Option<FinishReason>),
    /// How likely the prompt is, until that is reported.
    pub(super) scores: Option<Scores>,
    pub(super) started: Option<Instant>,
    pub(super) speculator: Speculator,
    /// Panics that it may have been the reason of.
    pub(super) panics: u32,
}

pub(super) enum ActiveTask {
    Answer(Box<Answer>),
    Embedding(Embedding),
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Done,
    Cancelled,
    Failed,
}

/// What a row added to an answer.
pub(super) struct Progress {
    pub(super) token: Option<u32>,
    pub(super) ending: Option<Ending>,
}

impl ActiveJob {
    /// Tokens of prompt and answer so far.
    pub(super) fn tokens(&self) -> usize {
        match &self.task {
            ActiveTask::Answer(answer) => self.prompt_tokens + answer.tokens(),
            ActiveTask::Embedding(_) => self.prompt_tokens,
        }
    }

    /// What may come next of an answer, up to so many tokens; `None` of a job that is no answer.
    pub(super) fn propose(&mut self, tokens: &[u32], most: usize) -> Option<(usize, Proposal)> {
        let ActiveTask::Answer(answer) = &mut self.task else { return None };
        // Nothing comes after the last token of an answer.
        let most = most.min(answer.room().saturating_sub(1));
        if most == 0 {
            return Some((0, Proposal::default()));
        }
        let forced = answer.forced();
        let proposal = match forced.is_empty() {
            true => self.speculator.look_up(tokens, most),
            false => self.speculator.forced(forced, most),
        };
        Some((most, proposal))
    }

    /// Reports that it left the queue, and its known tokens; returns why nothing is left to compute, if so.
    pub(super) fn start(&mut self, reused_tokens: usize) -> Option<FinishReason> {
        // Cached tokens may reach into the answer.
        self.reused_tokens = reused_tokens.min(self.prompt_tokens);
        self.started = Some(Instant::now());
        let (known, finish) = std::mem::take(&mut self.known);
        match (self.sink)(Update::Started { reused_tokens: self.reused_tokens, known }) {
            Flow::Stop => Some(FinishReason::Cancelled),
            Flow::Continue => finish,
        }
    }

    /// Reads how likely the token at `position` was, if it is of the prompt.
    pub(super) fn score(&mut self, position: usize, token: u32, logits: &[f32]) {
        if let Some(scores) = self.scores.as_mut().filter(|_| position < self.prompt_tokens) {
            scores.add(position, token, logits);
        }
    }

    /// Samples the next token and reports it; ends the job if this was the last.
    pub(super) fn sample(&mut self, logits: &[f32]) -> Progress {
        let scored = self.scores.take().map_or(Flow::Continue, |scores| (self.sink)(Update::Scored(scores.finish())));
        if scored == Flow::Stop {
            return Progress { token: None, ending: Some(self.end(FinishReason::Cancelled)) };
        }
        let ActiveTask::Answer(answer) = &mut self.task else {
            return Progress { token: None, ending: None };
        };
        let Choice { token, finish } = match answer.next(logits) {
            Ok(choice) => choice,
            Err(error) => return Progress { token: None, ending: Some(self.fail(error)) },
        };
        let number = token.as_ref().map(|token| token.token);
        let flow = token.map_or(Flow::Continue, |token| (self.sink)(Update::Token(token)));
        if flow == Flow::Stop {
            return Progress { token: number, ending: Some(self.end(FinishReason::Cancelled)) };
        }
        Progress { token: number, ending: finish.map(|finish| self.end(finish)) }
    }

    /// The last update of a job that ends with an answer, whole or not.
    pub(super) fn end(&mut self, finish: FinishReason) -> Ending {
        let (text, stop, tokens, end_token) = match &mut self.task {
            ActiveTask::Answer(answer) => {
                let text = if finish == FinishReason::Cancelled { String::new() } else { answer.rest() };
                (text, answer.stop(), answer.tokens(), answer.take_end_token())
            }
            ActiveTask::Embedding(_) => (String::new(), None, 0, None),
        };
        let (prompt_tokens, reused_tokens) = (self.prompt_tokens, self.reused_tokens);
        let outcome = JobOutcome { finish, text, stop, prompt_tokens, reused_tokens, tokens, end_token };
        (self.sink)(Update::Finished(outcome));
        if finish == FinishReason::Cancelled { Ending::Cancelled } else { Ending::Done }
    }

    /// The last update of a job that wanted this embedding.
    pub(super) fn embed(&mut self, embedding: Vec<f32>) -> Ending {
        (self.sink)(Update::Embedded(embedding));
        Ending::Done
    }

    /// The last update of a job that cannot be done.
    pub(super) fn fail(&mut self, error: EngineError) -> Ending {
        (self.sink)(Update::Failed(error));
        Ending::Failed
    }
}
