//! Runs one request on a session: prompt in, text out.

use std::time::Instant;

use cascadia_text::Tokenizer;

use crate::service::NewToken;
use crate::service::answer::{Answer, Choice, StartedAnswer};
use crate::{EngineError, Event, FinishReason, Flow, Outcome, Request, Session, Sink, Stats};

/// Generates the answer to a request, token for token what a service gives for the same. The session keeps the cache of
/// prompt and answer, so a request whose prompt starts with the same tokens pays only for what is new.
pub fn generate(
    tokenizer: &Tokenizer,
    session: &mut Session,
    request: &Request,
    sink: &mut Sink<'_>,
) -> Result<Outcome, EngineError> {
    let limits = session.token_limits();
    limits.check(&request.prompt, 0)?;
    let StartedAnswer { answer, known, finish } =
        Answer::start(request.generation.clone(), &request.prompt, tokenizer, limits)?;
    let stats = Stats { prompt_tokens: request.prompt.len(), ..Stats::default() };
    let mut run = Run { session, answer, sink, tokens: Vec::new(), stats };
    let finish = match run.show_all(&known).or(finish) {
        Some(finish) => finish,
        None => run.compute(&request.prompt)?,
    };
    Ok(run.end(finish))
}

/// One request while it runs.
struct Run<'a, 'b> {
    session: &'a mut Session,
    answer: Answer,
    sink: &'a mut Sink<'b>,
    tokens: Vec<u32>,
    stats: Stats,
}

impl Run<'_, '_> {
    /// Computes prompt and answer; returns why the answer ends.
    fn compute(&mut self, prompt: &[u32]) -> Result<FinishReason, EngineError> {
        let begin = Instant::now();
        let prompt = [prompt, &self.tokens].concat();
        self.stats.reused_tokens = self.session.reuse(&prompt).min(self.stats.prompt_tokens);
        let flow = self.prefill(&prompt)?;
        self.stats.prefill_seconds = begin.elapsed().as_secs_f64();
        if flow == Flow::Stop {
            return Ok(FinishReason::Cancelled);
        }
        let begin = Instant::now();
        let finish = self.decode();
        self.stats.decode_seconds = begin.elapsed().as_secs_f64();
        finish
    }

    /// Computes the prompt step by step, so that a receiver can stop a long one.
    fn prefill(&mut self, prompt: &[u32]) -> Result<Flow, EngineError> {
        let (total, rows_per_step) = (prompt.len(), self.session.rows_per_step());
        loop {
            let done = self.session.tokens().len();
            if (self.sink)(Event::Prompt { done, total }) == Flow::Stop {
                return Ok(Flow::Stop);
            }
            let rest = &prompt[done.min(total)..];
            if rest.len() <= rows_per_step {
                self.session.feed(rest)?;
                (self.sink)(Event::Prompt { done: total, total });
                return Ok(Flow::Continue);
            }
            self.session.append(&rest[..rows_per_step])?;
        }
    }

    /// Samples tokens until the answer ends.
    fn decode(&mut self) -> Result<FinishReason, EngineError> {
        loop {
            let Choice { token, finish } = self.answer.next(self.session.logits())?;
            let cancelled = token.as_ref().and_then(|token| self.show(token));
            if let Some(finish) = cancelled.or(finish) {
                return Ok(finish);
            }
            if let Some(token) = token {
                self.session.feed(&[token.token])?;
                self.stats.decode_steps += 1;
            }
        }
    }

    fn show_all(&mut self, tokens: &[NewToken]) -> Option<FinishReason> {
        tokens.iter().find_map(|token| self.show(token))
    }

    /// Passes a token on, even without text: the receiver must be able to stop.
    fn show(&mut self, token: &NewToken) -> Option<FinishReason> {
        self.tokens.push(token.token);
        ((self.sink)(Event::Token(token)) == Flow::Stop).then_some(FinishReason::Cancelled)
    }

    /// Passes on what was held back, unless nobody wants it.
    fn end(mut self, finish: FinishReason) -> Outcome {
        let rest = if finish == FinishReason::Cancelled { String::new() } else { self.answer.rest() };
        if !rest.is_empty() {
            (self.sink)(Event::Rest(&rest));
        }
        Outcome { finish, tokens: self.tokens, stats: self.stats }
    }
}
