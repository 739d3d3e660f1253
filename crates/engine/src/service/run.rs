//! The thread that computes: one job after the other.

use std::sync::mpsc::Receiver;
use std::sync::{Arc, PoisonError};

use super::handle::Shared;
use super::{Job, JobOutcome, NewToken, Task, Update};
use crate::{Engine, EngineError, Event, FinishReason, Flow, ModelText, Request, generate};

pub(super) struct Runner {
    pub(super) engine: Engine,
    pub(super) text: Arc<ModelText>,
    pub(super) shared: Arc<Shared>,
}

impl Runner {
    pub(super) fn run(mut self, jobs: &Receiver<Job>) {
        while let Ok(mut job) = jobs.recv() {
            let last = match self.answer(&mut job) {
                Ok(outcome) => Update::Finished(outcome),
                Err(error) => Update::Failed(error),
            };
            let mut snapshot = self.shared.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
            snapshot.finished += 1;
            drop(snapshot);
            (job.sink)(last);
        }
    }

    fn answer(&mut self, job: &mut Job) -> Result<JobOutcome, EngineError> {
        let Job { prompt, task, sink, .. } = job;
        let Task::Generate(wanted) = task else {
            return Err(EngineError::Setting { name: "task", value: "embed".into(), allowed: "generate" });
        };
        let request = Request {
            prompt: std::mem::take(prompt),
            sampling: wanted.sampling.clone(),
            max_tokens: wanted.max_tokens,
            stop: wanted.stop.clone(),
            stop_tokens: wanted.stop_tokens.clone(),
        };
        sink(Update::Started { reused_tokens: 0 });
        let outcome = generate(self.text.tokenizer(), &mut self.engine.session, &request, &mut |event| match event {
            Event::Text(text) => sink(Update::Token(NewToken { token: 0, text: text.to_owned(), chance: None })),
            Event::Prompt { .. } => Flow::Continue,
        })?;
        Ok(JobOutcome {
            finish: match outcome.finish {
                FinishReason::ContextFull => FinishReason::Length,
                other => other,
            },
            text: String::new(),
            stop: None,
            prompt_tokens: outcome.stats.prompt_tokens,
            reused_tokens: outcome.stats.reused_tokens,
            tokens: outcome.tokens.len(),
        })
    }
}
