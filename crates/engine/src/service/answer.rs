//! An answer while it grows: the one place where the tokens of a sequence are chosen and become text.

use cascadia_text::{StopStrings, StreamDecoder, Tokenizer};

use super::logprobs::chance;
use super::{Generation, NewToken};
use crate::{EngineError, FinishReason, Sampler};

/// The answer to one job.
pub(super) struct Answer {
    wanted: Generation,
    sampler: Sampler,
    decoder: StreamDecoder,
    stops: StopStrings,
    tokens: usize,
    stop: Option<usize>,
    /// Logits of what the constraint allows.
    allowed: Vec<f32>,
}

/// An answer of which something is known before the model is asked.
pub(super) struct Beginning {
    pub(super) answer: Answer,
    /// What it begins with.
    pub(super) known: Vec<NewToken>,
    /// Why it ends with that, if it does.
    pub(super) finish: Option<FinishReason>,
}

/// What came next.
pub(super) struct Choice {
    /// The token, unless the answer ended before it.
    pub(super) token: Option<NewToken>,
    /// Why the answer ends here, if it does.
    pub(super) finish: Option<FinishReason>,
}

impl Answer {
    /// An answer to `prompt`; an error when a setting is outside its range.
    pub(super) fn new(wanted: Generation, prompt: &[u32], tokenizer: &Tokenizer) -> Result<Answer, EngineError> {
        let mut sampler = Sampler::new(wanted.sampling.clone())?;
        sampler.see_prompt(prompt);
        let stops = StopStrings::new(&wanted.stop)?;
        let decoder = StreamDecoder::keeping(tokenizer, &wanted.kept_tokens);
        Ok(Answer { wanted, sampler, decoder, stops, tokens: 0, stop: None, allowed: Vec::new() })
    }

    /// The same after the tokens that `wanted` says are known of it, if they can be.
    pub(super) fn begin(
        mut wanted: Generation,
        prompt: &[u32],
        (tokenizer, context): (&Tokenizer, u32),
    ) -> Result<Beginning, EngineError> {
        let known = std::mem::take(&mut wanted.known);
        if !known.is_empty() && wanted.alternatives.is_none() {
            let mut answer = Answer::new(wanted.clone(), prompt, tokenizer)?;
            if let Some((known, finish)) = answer.tell_again(&known, prompt.len(), context) {
                return Ok(Beginning { answer, known, finish });
            }
        }
        Ok(Beginning { answer: Answer::new(wanted, prompt, tokenizer)?, known: Vec::new(), finish: None })
    }

    /// Says what it said when these tokens were chosen from `position` on; `None` where they cannot have been.
    fn tell_again(
        &mut self,
        tokens: &[u32],
        position: usize,
        context: u32,
    ) -> Option<(Vec<NewToken>, Option<FinishReason>)> {
        let (mut told, mut finish) = (Vec::with_capacity(tokens.len()), None);
        for (&token, position) in tokens.iter().zip(position..) {
            if finish.is_some() || self.room() == 0 {
                return None;
            }
            if let Some(constraint) = &mut self.wanted.constraint {
                constraint.accept(token).ok()?;
            }
            let choice = self.take(token, u32::try_from(position).ok()?, context);
            told.push(choice.token?);
            finish = choice.finish;
        }
        Some((told, finish))
    }

    /// Chooses the token at `position` of a sequence that has room for `context` tokens.
    pub(super) fn next(&mut self, logits: &[f32], position: u32, context: u32) -> Result<Choice, EngineError> {
        if self.room() == 0 {
            return Ok(Choice { token: None, finish: Some(FinishReason::Length) });
        }
        let token = self.sample(logits, position)?;
        let mut choice = self.take(token, position, context);
        if let (Some(told), Some(count)) = (&mut choice.token, self.wanted.alternatives) {
            told.chance = Some(chance(logits, token, count));
        }
        Ok(choice)
    }

    /// Makes a token that was chosen part of the answer, or ends the answer with it.
    fn take(&mut self, token: u32, position: u32, context: u32) -> Choice {
        if self.wanted.stop_tokens.contains(&token) {
            return Choice { token: None, finish: Some(FinishReason::Stop) };
        }
        self.sampler.see_output(token);
        self.tokens += 1;
        let checked = self.stops.push(&self.decoder.push(token));
        self.stop = checked.hit;
        let full = self.room() == 0 || position >= context;
        let finish = match checked.hit {
            Some(_) => Some(FinishReason::Stop),
            None => full.then_some(FinishReason::Length),
        };
        Choice { token: Some(NewToken { token, text: checked.text, chance: None }), finish }
    }

    /// The token at `position`, among those that the constraint allows.
    fn sample(&mut self, logits: &[f32], position: u32) -> Result<u32, EngineError> {
        let Some(constraint) = &mut self.wanted.constraint else { return self.sampler.sample(logits, position) };
        self.allowed.clear();
        self.allowed.extend_from_slice(logits);
        constraint.mask()?.apply(&mut self.allowed);
        let token = self.sampler.sample(&self.allowed, position)?;
        constraint.accept(token)?;
        Ok(token)
    }

    /// Tokens that must come next, whatever the model says: guesses that are always right.
    pub(super) fn forced(&mut self) -> Vec<u32> {
        self.wanted.constraint.as_mut().map(|constraint| constraint.forced()).unwrap_or_default()
    }

    /// Text that was held back; nothing is left of it after a stop text.
    pub(super) fn rest(&mut self) -> String {
        let rest = self.decoder.finish();
        self.stops.push(&rest).text + &self.stops.finish()
    }

    /// What a guess of the token at `position` should be: the same draw from other logits.
    pub(super) fn guess(&mut self, logits: &[f32], position: u32) -> Option<u32> {
        self.sampler.sample(logits, position).ok()
    }

    /// Tokens that may still come.
    pub(super) fn room(&self) -> usize {
        (self.wanted.max_tokens as usize).saturating_sub(self.tokens)
    }

    /// Tokens so far.
    pub(super) fn tokens(&self) -> usize {
        self.tokens
    }

    /// Which of the stop texts ended it.
    pub(super) fn stop(&self) -> Option<usize> {
        self.stop
    }
}
