//! Runs one request on a session: prompt in, text out.

use std::time::Instant;

use cascadia_text::{StopStrings, StreamDecoder, Tokenizer};

use crate::{EngineError, Event, FinishReason, Flow, Outcome, Request, Sampler, Session, Sink, Stats};

/// Generates the answer to a request. The session keeps the cache of prompt and answer, so a request whose prompt
/// starts with the same tokens pays only for what is new.
pub fn generate(
    tokenizer: &Tokenizer,
    session: &mut Session,
    request: &Request,
    sink: &mut Sink<'_>,
) -> Result<Outcome, EngineError> {
    let mut sampler = Sampler::new(request.sampling.clone())?;
    if request.prompt.len() > session.context() as usize {
        let (used, more) = (0, request.prompt.len());
        return Err(EngineError::ContextFull { used, more, context: session.context() });
    }
    let begin = Instant::now();
    let reused_tokens = session.reuse(&request.prompt);
    let mut stats = Stats { prompt_tokens: request.prompt.len(), reused_tokens, ..Stats::default() };
    let prefilled = prefill(session, &request.prompt, sink)?;
    stats.prefill_seconds = begin.elapsed().as_secs_f64();
    if prefilled == Flow::Stop {
        return Ok(Outcome { finish: FinishReason::Cancelled, tokens: Vec::new(), stats });
    }
    sampler.see_prompt(&request.prompt);
    let mut answer = Answer {
        decoder: StreamDecoder::new(tokenizer),
        stops: StopStrings::new(&request.stop)?,
        sink,
        tokens: Vec::new(),
    };
    let begin = Instant::now();
    let finish = decode(session, request, &mut sampler, &mut answer)?;
    stats.decode_seconds = begin.elapsed().as_secs_f64();
    stats.decode_steps = session.tokens().len().saturating_sub(request.prompt.len());
    let tokens = answer.close(finish);
    Ok(Outcome { finish, tokens, stats })
}

/// Computes the prompt step by step, so that a receiver can stop a long one.
fn prefill(session: &mut Session, prompt: &[u32], sink: &mut Sink<'_>) -> Result<Flow, EngineError> {
    let total = prompt.len();
    loop {
        let done = session.tokens().len();
        if sink(Event::Prompt { done, total }) == Flow::Stop {
            return Ok(Flow::Stop);
        }
        let rest = &prompt[done.min(total)..];
        if rest.len() <= session.rows_per_step() {
            session.feed(rest)?;
            sink(Event::Prompt { done: total, total });
            return Ok(Flow::Continue);
        }
        session.append(&rest[..session.rows_per_step()])?;
    }
}

fn decode(
    session: &mut Session,
    request: &Request,
    sampler: &mut Sampler,
    answer: &mut Answer<'_, '_>,
) -> Result<FinishReason, EngineError> {
    loop {
        if answer.tokens.len() >= request.max_tokens as usize {
            return Ok(FinishReason::Length);
        }
        let position = session.tokens().len();
        let token = sampler.sample(session.logits(), position as u32)?;
        if request.stop_tokens.contains(&token) {
            return Ok(FinishReason::Stop);
        }
        sampler.see_output(token);
        if let Some(finish) = answer.push(token) {
            return Ok(finish);
        }
        if session.room() == 0 {
            return Ok(FinishReason::ContextFull);
        }
        if answer.tokens.len() < request.max_tokens as usize {
            session.feed(&[token])?;
        }
    }
}

/// The answer so far, on its way from tokens to text that may be shown.
struct Answer<'a, 'b> {
    decoder: StreamDecoder,
    stops: StopStrings,
    sink: &'a mut Sink<'b>,
    tokens: Vec<u32>,
}

impl Answer<'_, '_> {
    /// Takes one token; says why the answer ends here, if it does.
    fn push(&mut self, token: u32) -> Option<FinishReason> {
        self.tokens.push(token);
        let text = self.decoder.push(token);
        let checked = self.stops.push(&text);
        // Even without text: the receiver must get a chance to stop.
        if (self.sink)(Event::Text(&checked.text)) == Flow::Stop {
            return Some(FinishReason::Cancelled);
        }
        checked.hit.map(|_| FinishReason::Stop)
    }

    /// Shows what was held back, unless a stop text ended the answer; returns the tokens.
    fn close(mut self, finish: FinishReason) -> Vec<u32> {
        // After a stop text both are empty.
        if finish != FinishReason::Cancelled {
            let rest = self.decoder.finish();
            let last = self.stops.push(&rest).text + &self.stops.finish();
            if !last.is_empty() {
                (self.sink)(Event::Text(&last));
            }
        }
        self.tokens
    }
}
