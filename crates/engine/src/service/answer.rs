//! An answer while it grows: the one place where the tokens of a sequence are chosen and become text.

use cascadia_text::{StopStrings, StreamDecoder, Tokenizer};

use super::logprobs::logprobs;
use super::{Generation, NewToken, TokenLogprobs};
use crate::token_limits::TokenLimits;
use crate::{EngineError, FinishReason, Sampler};

/// The answer to one prompt.
pub(crate) struct Answer {
    generation: Generation,
    limits: TokenLimits,
    sampler: Sampler,
    decoder: StreamDecoder,
    stops: StopStrings,
    /// Where the next token goes: tokens of prompt and answer so far.
    position: usize,
    tokens: usize,
    stop: Option<usize>,
    /// The token that ended it, where log probabilities are asked for.
    end_token: Option<(u32, TokenLogprobs)>,
    /// Logits of what the constraint allows.
    allowed: Vec<f32>,
}

/// An answer at its start, some tokens of which may be known from an earlier run.
pub(crate) struct StartedAnswer {
    pub(crate) answer: Answer,
    /// The tokens that are known.
    pub(crate) known: Vec<NewToken>,
    /// Why it ends with them, if it does.
    pub(crate) finish: Option<FinishReason>,
}

/// What came next.
pub(crate) struct Choice {
    /// The token, unless the answer ended before it.
    pub(crate) token: Option<NewToken>,
    /// Why the answer ends here, if it does.
    pub(crate) finish: Option<FinishReason>,
}

impl Answer {
    /// An answer to a prompt that keeps to the limits, continued after the known tokens of `generation` if these can
    /// be of it. An error when a setting is outside its range.
    pub(crate) fn start(
        mut generation: Generation,
        prompt: &[u32],
        tokenizer: &Tokenizer,
        limits: TokenLimits,
    ) -> Result<StartedAnswer, EngineError> {
        let known = std::mem::take(&mut generation.known);
        if !known.is_empty() && generation.alternatives.is_none() {
            let mut answer = Answer::new(generation.clone(), prompt, tokenizer, limits)?;
            if let Some((known, finish)) = answer.replay(&known) {
                return Ok(StartedAnswer { answer, known, finish });
            }
        }
        let answer = Answer::new(generation, prompt, tokenizer, limits)?;
        Ok(StartedAnswer { answer, known: Vec::new(), finish: None })
    }

    fn new(
        generation: Generation,
        prompt: &[u32],
        tokenizer: &Tokenizer,
        limits: TokenLimits,
    ) -> Result<Answer, EngineError> {
        let mut sampler = Sampler::new(generation.sampling.clone())?;
        sampler.see_prompt(prompt);
        let stops = StopStrings::new(&generation.stop)?;
        let decoder = StreamDecoder::keeping(tokenizer, &generation.kept_tokens);
        let (position, tokens) = (prompt.len(), 0);
        let (stop, end_token, allowed) = (None, None, Vec::new());
        Ok(Answer { generation, limits, sampler, decoder, stops, position, tokens, stop, end_token, allowed })
    }

    /// Accepts tokens that were sampled in an earlier run; `None` where they cannot have been.
    fn replay(&mut self, tokens: &[u32]) -> Option<(Vec<NewToken>, Option<FinishReason>)> {
        let (mut accepted, mut finish) = (Vec::with_capacity(tokens.len()), None);
        for &token in tokens {
            if finish.is_some() || self.room() == 0 || !self.limits.includes(token) {
                return None;
            }
            if let Some(constraint) = &mut self.generation.constraint {
                constraint.accept(token).ok()?;
            }
            let choice = self.accept(token);
            accepted.push(choice.token?);
            finish = choice.finish;
        }
        Some((accepted, finish))
    }

    /// Samples the next token.
    pub(crate) fn next(&mut self, logits: &[f32]) -> Result<Choice, EngineError> {
        if self.room() == 0 {
            return Ok(Choice { token: None, finish: Some(FinishReason::Length) });
        }
        let token = self.sample(logits)?;
        let mut choice = self.accept(token);
        if let Some(count) = self.generation.alternatives {
            let logprobs = logprobs(logits, token, count);
            match &mut choice.token {
                Some(new) => new.logprobs = Some(logprobs),
                None => self.end_token = Some((token, logprobs)),
            }
        }
        Ok(choice)
    }

    /// Makes a sampled token part of the answer, or ends the answer with it.
    fn accept(&mut self, token: u32) -> Choice {
        if self.generation.stop_tokens.contains(&token) {
            return Choice { token: None, finish: Some(FinishReason::Stop) };
        }
        self.sampler.see_output(token);
        // A token that fills the context is shown and never computed.
        let full = self.position >= self.limits.context as usize;
        self.position += 1;
        self.tokens += 1;
        let checked = self.stops.push(&self.decoder.push(token));
        self.stop = checked.hit;
        let finish = match checked.hit {
            Some(_) => Some(FinishReason::Stop),
            None => (full || self.room() == 0).then_some(FinishReason::Length),
        };
        Choice { token: Some(NewToken { token, text: checked.text, logprobs: None }), finish }
    }

    /// The next token, among those that the constraint allows.
    fn sample(&mut self, logits: &[f32]) -> Result<u32, EngineError> {
        let position = self.position as u32;
        let Some(constraint) = &mut self.generation.constraint else {
            if self.tokens >= self.generation.min_tokens as usize {
                return self.sampler.sample(logits, position);
            }
            self.allowed.clear();
            self.allowed.extend_from_slice(logits);
            for &token in &self.generation.stop_tokens {
                self.allowed.get_mut(token as usize).into_iter().for_each(|logit| *logit = f32::NEG_INFINITY);
            }
            return self.sampler.sample(&self.allowed, position);
        };
        self.allowed.clear();
        self.allowed.extend_from_slice(logits);
        constraint.mask()?.apply(&mut self.allowed);
        let token = self.sampler.sample(&self.allowed, position)?;
        constraint.accept(token)?;
        Ok(token)
    }

    /// Tokens that the constraint forces next: draft tokens that are always accepted.
    pub(crate) fn forced(&mut self) -> Vec<u32> {
        self.generation.constraint.as_mut().map(|constraint| constraint.forced()).unwrap_or_default()
    }

    /// Text that was held back; nothing is left of it after a stop text.
    pub(crate) fn rest(&mut self) -> String {
        let rest = self.decoder.finish();
        self.stops.push(&rest).text + &self.stops.finish()
    }

    /// A draft token for `position`: the same random number applied to the logits of a draft model.
    pub(crate) fn draft(&mut self, logits: &[f32], position: u32) -> Option<u32> {
        self.sampler.sample(logits, position).ok()
    }

    /// Tokens that may still come.
    pub(crate) fn room(&self) -> usize {
        (self.generation.max_tokens as usize).saturating_sub(self.tokens)
    }

    /// Tokens so far.
    pub(crate) fn tokens(&self) -> usize {
        self.tokens
    }

    /// The token that ended it, where log probabilities are asked for.
    pub(crate) fn take_end_token(&mut self) -> Option<(u32, TokenLogprobs)> {
        self.end_token.take()
    }

    /// Which of the stop texts ended it.
    pub(crate) fn stop(&self) -> Option<usize> {
        self.stop
    }
}
