//! Perplexity of a text: windows of equal length, each after a BOS token, every token scored.

use cascadia_engine::{EngineError, Session};

use crate::{EvalError, TextWindows};

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
    let windows = cut.cut(tokens)?;
    let mut score = Score::default();
    for (done, window) in windows.iter().enumerate() {
        progress(done, windows.len());
        window.feed(session, |logits, target| score.add(logits, target))?;
    }
    progress(windows.len(), windows.len());
    Ok(score.finish())
}

/// Sums over the scored tokens, in double precision.
#[derive(Default)]
pub(crate) struct Score {
    negative_log_likelihood: f64,
    hits: usize,
    tokens: usize,
}

/// What logits say: the likeliest token, and by how much every logit exceeds its log-probability.
pub(crate) struct Prediction {
    pub(crate) top: u32,
    pub(crate) log_total: f64,
}

/// The likeliest token and its logit; an error when the logits cannot be ranked.
pub(crate) fn likeliest(logits: &[f32]) -> Result<(u32, f32), EngineError> {
    let (mut top, mut best) = (0, f32::NEG_INFINITY);
    for (id, &logit) in logits.iter().enumerate() {
        if logit.is_nan() || logit == f32::INFINITY {
            return Err(EngineError::BrokenLogits { token: id });
        }
        if logit > best {
            (top, best) = (id as u32, logit);
        }
    }
    Ok((top, best))
}

impl Prediction {
    /// An error when the logits cannot be ranked.
    pub(crate) fn of(logits: &[f32]) -> Result<Prediction, EngineError> {
        let (top, best) = likeliest(logits)?;
        let best = f64::from(best);
        let sum: f64 = logits.iter().map(|&logit| libm::exp(f64::from(logit) - best)).sum();
        Ok(Prediction { top, log_total: best + libm::log(sum) })
    }

    /// The log-probability of a token.
    pub(crate) fn log_probability(&self, logits: &[f32], token: u32) -> f64 {
        f64::from(logits[token as usize]) - self.log_total
    }
}

impl Score {
    /// Scores one prediction.
    pub(crate) fn add(&mut self, logits: &[f32], target: u32) -> Result<(), EngineError> {
        let prediction = Prediction::of(logits)?;
        self.count(prediction.log_probability(logits, target), prediction.top == target);
        Ok(())
    }

    /// Counts a token with its log-probability and whether it was ranked first.
    pub(crate) fn count(&mut self, log_probability: f64, hit: bool) {
        self.negative_log_likelihood -= log_probability;
        self.hits += usize::from(hit);
        self.tokens += 1;
    }

    pub(crate) fn finish(&self) -> Perplexity {
        let tokens = self.tokens as f64;
        Perplexity {
            tokens: self.tokens,
            perplexity: libm::exp(self.negative_log_likelihood / tokens),
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
        score.add(&[0.5, 0.25, 0.25].map(libm::logf), 2).unwrap();
        score.add(&[libm::logf(0.125) + 5.0, libm::logf(0.875) + 5.0, f32::NEG_INFINITY], 1).unwrap();
        let result = score.finish();
        assert_eq!(result.tokens, 2);
        assert_eq!(result.top1, 0.5);
        assert!((result.perplexity - libm::pow(0.25 * 0.875, -0.5)).abs() < 1e-6);
    }

    #[test]
    fn broken_logits_are_an_error() {
        assert!(Score::default().add(&[0.0, f32::NAN], 0).is_err());
        assert!(Score::default().add(&[0.0, f32::INFINITY], 0).is_err());
    }
}
