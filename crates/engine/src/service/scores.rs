//! How likely the tokens of a prompt are: read row by row while it is computed, and reported at once.

use super::TokenLogprobs;
use super::logprobs::logprobs;

/// The log probabilities of a prompt's tokens, as far as its rows are computed.
pub(super) struct Scores {
    alternatives: u32,
    /// Of the second token and those after it.
    tokens: Vec<TokenLogprobs>,
}

impl Scores {
    pub(super) fn new(alternatives: u32) -> Scores {
        Scores { alternatives, tokens: Vec::new() }
    }

    /// Reads the row before the token at `position`. Rows that are computed again give the same, and are passed over.
    pub(super) fn add(&mut self, position: usize, token: u32, logits: &[f32]) {
        if position == self.tokens.len() + 1 {
            self.tokens.push(logprobs(logits, token, self.alternatives));
        }
    }

    /// All of them.
    pub(super) fn finish(self) -> Vec<TokenLogprobs> {
        self.tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_comes_again_counts_once() {
        let mut scores = Scores::new(1);
        for (position, token) in [(1, 0), (2, 1), (1, 0), (2, 1), (3, 0)] {
            scores.add(position, token, &[0.0, 0.0]);
        }
        let scores = scores.finish();
        assert_eq!(scores.len(), 3);
        assert!(scores.iter().all(|score| (score.log_probability + libm::logf(2.0)).abs() < 1e-6));
    }
}
