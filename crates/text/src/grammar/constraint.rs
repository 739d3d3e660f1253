//! The state of one answer that must have a format.

use std::collections::VecDeque;
use std::sync::Arc;

use llguidance::Matcher;
use toktrie::SimpleVob;

use super::compiled::Compiled;
use super::work::WorkCounters;
use crate::TextError;

/// Most tokens that are forced at once; the rest follows with the next call.
const MAX_FORCED: usize = 256;

/// Which tokens may come next. The state belongs to one answer; a clone goes its own way.
pub struct Constraint {
    compiled: Arc<Compiled>,
    /// The state of the answer, once it has begun: answers that wait share what is compiled.
    begun: Option<Matcher>,
    mask: Option<TokenMask>,
    /// The tokens that must come next; `None` where this is not known yet.
    forced: Option<VecDeque<u32>>,
    work: Arc<WorkCounters>,
    format: &'static str,
    ended: bool,
}

impl Constraint {
    pub(super) fn new(compiled: Arc<Compiled>, work: Arc<WorkCounters>, format: &'static str) -> Constraint {
        Constraint { compiled, begun: None, mask: None, forced: None, work, format, ended: false }
    }

    /// The tokens that may come next. End tokens are among them once the format is complete, and alone when nothing
    /// may follow.
    pub fn mask(&mut self) -> Result<&TokenMask, TextError> {
        if self.mask.is_none() {
            self.mask = Some(TokenMask(self.compute_mask()?));
        }
        self.mask.as_ref().ok_or_else(|| self.failure("it has no mask"))
    }

    fn compute_mask(&mut self) -> Result<SimpleVob, TextError> {
        let environment = self.matcher().tok_env().map_err(|error| self.failure(&error.to_string()))?;
        if let Some(&token) = self.forced_tokens().front() {
            return Ok(environment.tok_trie().singleton_token_set(token));
        }
        let allowed = self.matcher().compute_mask_or_eos().map_err(|error| self.failure(&error.to_string()))?;
        self.work.count_mask(self.begun.as_ref().and_then(|matcher| matcher.last_step_stats().ok()));
        Ok(allowed)
    }

    /// Advances past a token. One that does not fit is an error and changes nothing.
    pub fn accept(&mut self, token: u32) -> Result<(), TextError> {
        let environment = self.matcher().tok_env().map_err(|error| self.failure(&error.to_string()))?;
        let trie = environment.tok_trie();
        // Known before every token, however the answer came here: what is forced is a function of its tokens.
        self.forced_tokens();
        let is_known = (token as usize) < trie.vocab_size();
        let fits = match self.matcher().is_stopped() {
            true => !self.ended && trie.eos_tokens().contains(&token),
            false if is_known => {
                let accepted = self.matcher().try_consume_tokens(&[token]);
                accepted.map_err(|error| self.failure(&error.to_string()))? == 1
            }
            false => false,
        };
        if !fits {
            return Err(self.failure(&format!("token {token} does not fit here")));
        }
        self.work.count_token();
        self.mask = None;
        // They stay known as long as they come. Tokenising the rest anew at every token would take the square of its length.
        let as_forced = self.forced.as_mut().is_some_and(|forced| forced.pop_front() == Some(token));
        self.forced.take_if(|forced| !as_forced || forced.is_empty());
        self.ended = trie.eos_tokens().contains(&token) && self.matcher().is_stopped();
        Ok(())
    }

    /// The tokens that must come next whatever the model says, as its tokenizer would write them; possibly none.
    ///
    /// Nothing is accepted: the caller accepts those it takes. Taking them at once or letting [`mask`](Constraint::mask)
    /// force them one by one gives the same answer.
    pub fn forced(&mut self) -> Vec<u32> {
        self.forced_tokens().iter().copied().take(MAX_FORCED).collect()
    }

    fn forced_tokens(&mut self) -> &VecDeque<u32> {
        let matcher = self.begun.get_or_insert_with(|| self.compiled.begin());
        self.forced.get_or_insert_with(|| match matcher.is_stopped() {
            true => VecDeque::new(),
            false => matcher.compute_ff_tokens().into(),
        })
    }

    /// Whether the answer may end here.
    pub fn may_end(&mut self) -> bool {
        self.must_end() || self.matcher().is_accepting().unwrap_or(false)
    }

    /// Whether nothing but the end may follow.
    pub fn must_end(&self) -> bool {
        self.begun.as_ref().is_some_and(|matcher| matcher.is_stopped() && !matcher.is_error())
    }

    fn matcher(&mut self) -> &mut Matcher {
        self.begun.get_or_insert_with(|| self.compiled.begin())
    }

    fn failure(&self, reason: &str) -> TextError {
        TextError::Constraint { format: self.format, reason: first_line(reason) }
    }
}

impl Clone for Constraint {
    fn clone(&self) -> Constraint {
        // A plain clone of a matcher would share its tables, and with them the limits on their size.
        let begun = self.begun.as_ref().map(Matcher::deep_clone);
        let (mask, forced, work) = (self.mask.clone(), self.forced.clone(), Arc::clone(&self.work));
        Constraint { compiled: Arc::clone(&self.compiled), begun, mask, forced, work, ..*self }
    }
}

impl std::fmt::Debug for Constraint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Constraint").field("format", &self.format).field("ended", &self.ended).finish_non_exhaustive()
    }
}

/// What the library said, without the dump of its state that may follow.
pub(super) fn first_line(reason: &str) -> String {
    reason.lines().next().unwrap_or_default().chars().take(400).collect()
}

/// A set of tokens.
#[derive(Debug, Clone)]
pub struct TokenMask(SimpleVob);

impl TokenMask {
    /// Whether a token is in the set.
    pub fn allows(&self, token: u32) -> bool {
        (token as usize) < self.0.len() && self.0.is_allowed(token)
    }

    /// How many tokens are in the set.
    pub fn count(&self) -> usize {
        self.0.num_set()
    }

    /// The tokens of the set in rising order.
    pub fn tokens(&self) -> Vec<u32> {
        let mut tokens = Vec::with_capacity(self.count());
        self.0.iter_set_entries(|token| tokens.push(token as u32));
        tokens
    }

    /// Sets the scores of all other tokens to minus infinity, those beyond the vocabulary included.
    pub fn apply(&self, logits: &mut [f32]) {
        let words = self.0.as_slice();
        for (index, scores) in logits.chunks_mut(32).enumerate() {
            match words.get(index).copied().unwrap_or(0) {
                0 => scores.fill(f32::NEG_INFINITY),
                u32::MAX => {}
                word => {
                    let others = scores.iter_mut().enumerate().filter(|(bit, _)| (word >> bit) & 1 == 0);
                    others.for_each(|(_, score)| *score = f32::NEG_INFINITY);
                }
            }
        }
    }
}
