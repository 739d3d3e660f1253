//! Runs one request on a session: prompt in, text out.

use std::time::Instant;

use cascadia_text::Tokenizer;

use crate::service::NewToken;
use crate::service::answer::{Answer, Choice, StartedAnswer};
use crate::service::speculate::{Speculator, draft_lengths};
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
    let draft_tokens = request.draft_tokens as usize;
    let mut run = Run { session, answer, sink, draft_tokens, tokens: Vec::new(), stats };
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
    draft_tokens: usize,
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
        let finish = self.decode(prompt);
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

    /// Samples tokens until the answer ends. What the text suggests is computed along with the last token, and counts as
    /// far as the same tokens are sampled.
    fn decode(&mut self, mut text: Vec<u32>) -> Result<FinishReason, EngineError> {
        let mut speculator = Speculator::default();
        let (mut draft, mut accepted, mut begin) = (Vec::new(), 0, None);
        loop {
            let Choice { token, finish } = self.answer.next(self.session.row_logits(accepted))?;
            let cancelled = token.as_ref().and_then(|token| self.show(token));
            if let Some(finish) = cancelled.or(finish) {
                self.session.truncate(text.len());
                return Ok(finish);
            }
            let Some(NewToken { token, .. }) = token else { continue };
            self.stats.decoded_tokens += 1;
            text.push(token);
            if draft.get(accepted) == Some(&token) {
                accepted += 1;
                continue;
            }
            if let Some(begin) = begin.replace(Instant::now()) {
                self.session.costs.record(1 + draft.len(), begin.elapsed().as_secs_f64());
            }
            self.take_back(&text[..text.len() - 1])?;
            draft = self.draft(&mut speculator, &text);
            accepted = 0;
            self.session.feed_rows(&[&[token], draft.as_slice()].concat())?;
        }
    }

    /// Forgets draft tokens that were not sampled: the session holds this text.
    fn take_back(&mut self, text: &[u32]) -> Result<(), EngineError> {
        let held = self.session.truncate(text.len());
        if held < text.len() { self.session.append(&text[held..]) } else { Ok(()) }
    }

    /// Tokens that may follow, as many as are worth their rows.
    fn draft(&mut self, speculator: &mut Speculator, text: &[u32]) -> Vec<u32> {
        let room = self.session.room().saturating_sub(1).min(self.answer.room().saturating_sub(1));
        let most = self.draft_tokens.min(room).min(self.session.most_rows() - 1);
        if most == 0 {
            return Vec::new();
        }
        let forced = self.answer.forced();
        let mut proposal = match forced.is_empty() {
            true => speculator.look_up(text, most),
            false => speculator.forced(forced, most),
        };
        proposal.tokens.truncate(draft_lengths(&[&proposal.probabilities], most, &self.session.costs)[0]);
        proposal.tokens
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
