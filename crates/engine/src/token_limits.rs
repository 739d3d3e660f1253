//! What the tokens of a request must keep to, wherever it runs.

use crate::EngineError;

/// The longest sequence and the vocabulary of a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenLimits {
    /// The most tokens of prompt and answer together.
    pub(crate) context: u32,
    /// Every token is below this.
    pub(crate) vocabulary: usize,
}

impl TokenLimits {
    /// An error unless there are tokens, all of the vocabulary, and they fit after `used` others.
    pub(crate) fn check(&self, tokens: &[u32], used: usize) -> Result<(), EngineError> {
        let TokenLimits { context, vocabulary } = *self;
        if tokens.is_empty() {
            return Err(EngineError::Setting { name: "prompt", value: "empty".into(), allowed: "at least one token" });
        }
        if tokens.len() > (context as usize).saturating_sub(used) {
            return Err(EngineError::ContextFull { used, more: tokens.len(), context });
        }
        match tokens.iter().find(|token| !self.includes(**token)) {
            Some(&token) => Err(EngineError::UnknownToken { token, vocabulary }),
            None => Ok(()),
        }
    }

    /// Whether a token is in the vocabulary.
    pub(crate) fn includes(&self, token: u32) -> bool {
        (token as usize) < self.vocabulary
    }
}
