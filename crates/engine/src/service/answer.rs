//! An answer while it grows: the one place where the tokens of a sequence are chosen and become text.

use cascadia_text::{StopStrings, StreamDecoder, Tokenizer};

use super::chance::chance;
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

    /// Chooses the token at `position` of a sequence that has room for `context` tokens.
    pub(super) fn next(&mut self, logits: &[f32], position: u32, context: u32) -> Result<Choice, EngineError> {
        let end = |finish| Ok(Choice { token: None, finish: Some(finish) });
        if self.tokens >= self.wanted.max_tokens as usize {
            return end(FinishReason::Length);
        }
        let token = self.sample(logits, position)?;
        if self.wanted.stop_tokens.contains(&token) {
            return end(FinishReason::Stop);
        }
        self.sampler.see_output(token);
        self.tokens += 1;
        let checked = self.stops.push(&self.decoder.push(token));
        self.stop = checked.hit;
        let full = self.tokens >= self.wanted.max_tokens as usize || position >= context;
        let finish = match checked.hit {
            Some(_) => Some(FinishReason::Stop),
            None => full.then_some(FinishReason::Length),
        };
        let chance = self.wanted.alternatives.map(|count| chance(logits, token, count));
        Ok(Choice { token: Some(NewToken { token, text: checked.text, chance }), finish })
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
