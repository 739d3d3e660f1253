//! Text from a model, piece by piece.

use std::sync::mpsc::{Receiver, channel};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use cascadia_engine::service::{Generation as Answer, Job, JobId, Priority, ServiceHandle, Task, Tenant, Update};
use cascadia_engine::{FinishReason, Flow, Message, Sampling, Stats};

use crate::{Error, Model};

/// How an answer is generated.
#[derive(Clone, Debug)]
pub struct GenerateOptions {
    /// How tokens are sampled. The same seed gives the same text.
    pub sampling: Sampling,
    /// The most tokens to generate.
    pub max_tokens: u32,
    /// Texts that end the answer; none of them is part of it.
    pub stop: Vec<String>,
}

impl Default for GenerateOptions {
    fn default() -> GenerateOptions {
        let sampling = Sampling { seed: seed_from_clock(), ..Sampling::default() };
        GenerateOptions { sampling, max_tokens: 512, stop: Vec::new() }
    }
}

impl GenerateOptions {
    /// Always takes the most likely token.
    pub fn greedy() -> GenerateOptions {
        GenerateOptions { sampling: Sampling { temperature: 0.0, ..Sampling::default() }, ..GenerateOptions::default() }
    }

    /// The same with at most so many tokens.
    pub fn max_tokens(self, tokens: u32) -> GenerateOptions {
        GenerateOptions { max_tokens: tokens, ..self }
    }
}

/// More of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    /// Text that may be shown now: whole characters, never part of a stop text, possibly none.
    pub text: String,
    /// The token; none where text that was held back follows the last one.
    pub token: Option<u32>,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finished {
    /// Why it ended.
    pub reason: FinishReason,
    /// Tokens of the answer.
    pub tokens: usize,
    /// What it cost.
    pub stats: Stats,
}

/// An answer that is being generated: an iterator over its text. Dropping it ends the request.
pub struct Generation {
    updates: Receiver<Update>,
    service: ServiceHandle,
    id: JobId,
    begin: Instant,
    first_token: Option<Instant>,
    finished: Option<Finished>,
}

impl Model {
    /// Continues a text. Special tokens in it are recognised.
    pub fn generate(&self, prompt: &str) -> Result<Generation, Error> {
        self.generate_with(prompt, &GenerateOptions::default())
    }

    /// The same with options.
    pub fn generate_with(&self, prompt: &str, options: &GenerateOptions) -> Result<Generation, Error> {
        self.generate_tokens(self.text.plain_prompt(prompt)?, options)
    }

    /// Answers a conversation, which the model's chat template turns into a prompt.
    pub fn chat(&self, messages: &[Message]) -> Result<Generation, Error> {
        self.chat_with(messages, &GenerateOptions::default())
    }

    /// The same with options.
    pub fn chat_with(&self, messages: &[Message], options: &GenerateOptions) -> Result<Generation, Error> {
        self.generate_tokens(self.text.chat_prompt(messages)?, options)
    }

    /// Continues a prompt that is made of tokens already.
    pub fn generate_tokens(&self, prompt: Vec<u32>, options: &GenerateOptions) -> Result<Generation, Error> {
        let GenerateOptions { sampling, max_tokens, stop } = options.clone();
        let stop_tokens = self.text.special().stop.clone();
        let task = Task::Generate(Answer { stop, stop_tokens, ..Answer::new(sampling, max_tokens) });
        let (sender, updates) = channel();
        let sink = Box::new(move |update| if sender.send(update).is_ok() { Flow::Continue } else { Flow::Stop });
        let (tenant, priority, deadline) = (Tenant::default(), Priority::Normal, None);
        let (begin, service) = (Instant::now(), self.service.handle());
        let id = service.submit(Job { prompt, task, tenant, adapter: None, priority, deadline, sink })?;
        Ok(Generation { updates, service, id, begin, first_token: None, finished: None })
    }
}

impl Generation {
    /// How the answer ended; nothing while it has not.
    pub fn finished(&self) -> Option<&Finished> {
        self.finished.as_ref()
    }

    /// The whole text of the answer, or the rest of it.
    pub fn text(self) -> Result<String, Error> {
        self.map(|delta| delta.map(|delta| delta.text)).collect()
    }
}

impl Iterator for Generation {
    type Item = Result<Delta, Error>;

    fn next(&mut self) -> Option<Result<Delta, Error>> {
        while self.finished.is_none() {
            match self.updates.recv() {
                Ok(Update::Token(token)) => {
                    self.first_token.get_or_insert_with(Instant::now);
                    return Some(Ok(Delta { text: token.text, token: Some(token.token) }));
                }
                Ok(Update::Finished(outcome)) => {
                    let first_token = self.first_token.unwrap_or_else(Instant::now);
                    let stats = Stats {
                        prompt_tokens: outcome.prompt_tokens,
                        reused_tokens: outcome.reused_tokens,
                        prefill_seconds: (first_token - self.begin).as_secs_f64(),
                        decoded_tokens: outcome.tokens.saturating_sub(1),
                        decode_seconds: first_token.elapsed().as_secs_f64(),
                    };
                    self.finished = Some(Finished { reason: outcome.finish, tokens: outcome.tokens, stats });
                    if !outcome.text.is_empty() {
                        return Some(Ok(Delta { text: outcome.text, token: None }));
                    }
                }
                Ok(Update::Failed(error)) => return Some(Err(self.failed(error.into()))),
                Ok(Update::Started { .. } | Update::Scored(_) | Update::Embedded(_)) => {}
                Err(_) => return Some(Err(self.failed(Error::Closed))),
            }
        }
        None
    }
}

impl Generation {
    /// Ends the iteration after an error.
    fn failed(&mut self, error: Error) -> Error {
        self.finished = Some(Finished { reason: FinishReason::Cancelled, tokens: 0, stats: Stats::default() });
        error
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if self.finished.is_none() {
            self.service.cancel(self.id);
        }
    }
}

/// A seed that differs from run to run and is short enough to type again.
fn seed_from_clock() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::from(now.subsec_nanos()) ^ (now.as_secs() & 0xffff_ffff)
}
