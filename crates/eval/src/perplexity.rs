//! Perplexity of a text: windows of equal length, each after a BOS token, every token scored.

use cascadia_engine::{EngineError, Session};

use crate::EvalError;

/// How a text is cut and how much of it is scored.
#[derive(Clone, Copy, Debug)]
pub struct TextWindows {
    /// The most windows to score.
    pub windows: usize,
    /// Tokens of one window, all of them scored.
    pub window: usize,
    /// The token put before each window; it is not scored.
    pub bos: u32,
}

/// The score of a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Perplexity {
    /// Tokens scored.
    pub tokens: usize,
    /// `exp` of the mean negative log-likelihood.
    pub perplexity: f64,
    /// Share of tokens that the model ranked first.
    pub top1: f64,
}

/// Scores the tokens of a text. Only whole windows count. `progress` hears (windows done, windows in all).
pub fn perplexity(
    session: &mut Session,
    tokens: &[u32],
    cut: TextWindows,
    mut progress: impl FnMut(usize, usize),
) -> Result<Perplexity, EvalError> {
    for (name, value) in [("window", cut.window), ("windows", cut.windows)] {
        if value == 0 {
            return Err(EvalError::Option { name, value, allowed: "at least 1" });
        }
    }
    let total = cut.windows.min(tokens.len() / cut.window);
    if total == 0 {
        return Err(EvalError::TextTooShort { tokens: tokens.len(), window: cut.window });
    }
    let mut score = Score::default();
    for (done, window) in tokens.chunks_exact(cut.window).take(total).enumerate() {
        progress(done, total);
        session.truncate(0);
        let mut input = Vec::with_capacity(cut.window);
        input.push(cut.bos);
        input.extend_from_slice(&window[..cut.window - 1]);
        session.check(window)?;
        session.feed_each(&input, |position, logits| score.add(logits, window[position as usize]))?;
    }
    progress(total, total);
    Ok(score.finish())
}

/// Sums over the scored tokens, in double precision.
#[derive(Default)]
struct Score {
    negative_log_likelihood: f64,
    hits: usize,
    tokens: usize,
}

impl Score {
    fn add(&mut self, logits: &[f32], target: u32) -> Result<(), EngineError> {
        let (mut best, mut best_id) = (f32::NEG_INFINITY, 0);
        for (id, &logit) in logits.iter().enumerate() {
            if logit.is_nan() || logit == f32::INFINITY {
                return Err(EngineError::BrokenLogits { token: id });
            }
            if logit > best {
                (best, best_id) = (logit, id);
            }
        }
        let best = f64::from(best);
        let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - best).exp()).sum();
        self.negative_log_likelihood += best + sum.ln() - f64::from(logits[target as usize]);
        self.hits += usize::from(best_id == target as usize);
        self.tokens += 1;
        Ok(())
    }

    fn finish(&self) -> Perplexity {
        let tokens = self.tokens as f64;
        Perplexity {
            tokens: self.tokens,
            perplexity: (self.negative_log_likelihood / tokens).exp(),
            top1: self.hits as f64 / tokens,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_match_hand_computed_ones() {
        let mut score = Score::default();
        // Probabilities 1/2, 1/4, 1/4 and then 1/8, 7/8, 0: likelihoods 1/4 and 7/8.
        score.add(&[(0.5f32).ln(), (0.25f32).ln(), (0.25f32).ln()], 2).unwrap();
        score.add(&[(0.125f32).ln() + 5.0, (0.875f32).ln() + 5.0, f32::NEG_INFINITY], 1).unwrap();
        let result = score.finish();
        assert_eq!(result.tokens, 2);
        assert_eq!(result.top1, 0.5);
        assert!((result.perplexity - (0.25f64 * 0.875).powf(-0.5)).abs() < 1e-6);
    }

    #[test]
    fn broken_logits_are_an_error() {
        assert!(Score::default().add(&[0.0, f32::NAN], 0).is_err());
        assert!(Score::default().add(&[0.0, f32::INFINITY], 0).is_err());
    }
}
