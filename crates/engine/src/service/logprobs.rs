//! How likely tokens are, as the model sees it.

use super::{Alternative, TokenLogprobs};
use crate::exponential::exp;

/// What lies further below the best logit adds nothing to the sum.
const LEAST: f64 = -700.0;

/// The log probability of `token` and of the `count` most likely ones; among equals the lower id comes first.
pub(super) fn logprobs(logits: &[f32], token: u32, count: u32) -> TokenLogprobs {
    let best = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    // No call into the system, so that every machine says the same.
    let total: f64 = logits.iter().map(|logit| exp((f64::from(*logit) - best).max(LEAST))).sum();
    let log_total = libm::log(total) + best;
    let log_probability = |logit: f32| (f64::from(logit) - log_total) as f32;
    let alternative = |(logit, token)| Alternative { token, log_probability: log_probability(logit) };
    TokenLogprobs {
        log_probability: log_probability(logits[token as usize]),
        alternatives: most_likely(logits, count as usize).into_iter().map(alternative).collect(),
    }
}

/// The `count` largest logits with their tokens, best first. One comparison passes over nearly all of a vocabulary.
fn most_likely(logits: &[f32], count: usize) -> Vec<(f32, u32)> {
    let mut held: Vec<(f32, u32)> = Vec::with_capacity(count.min(logits.len()) + 1);
    for (&logit, token) in logits.iter().zip(0..) {
        let is_full = held.len() == count;
        if is_full && held.last().is_none_or(|(least, _)| logit <= *least) {
            continue;
        }
        // An equal logit of a later token ranks behind those that are held.
        let place = held.partition_point(|(other, _)| *other >= logit);
        held.insert(place, (logit, token));
        held.truncate(count);
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_probabilities_are_of_the_raw_logits_and_ranked() {
        let found = logprobs(&[0.0, 2.0, 2.0, f32::NEG_INFINITY], 0, 3);
        let total = 1.0 + 2.0 * libm::exp(2.0);
        let expected = [(1, 2.0 - libm::log(total)), (2, 2.0 - libm::log(total)), (0, -libm::log(total))];
        assert!((f64::from(found.log_probability) + libm::log(total)).abs() < 1e-6);
        for (alternative, (token, log_probability)) in found.alternatives.iter().zip(expected) {
            assert_eq!(alternative.token, token);
            assert!((f64::from(alternative.log_probability) - log_probability).abs() < 1e-6);
        }
        assert_eq!(found.alternatives.len(), 3);
        assert!(logprobs(&[1.0], 0, 0).alternatives.is_empty());
        assert_eq!(logprobs(&[1.0], 0, 9).alternatives.len(), 1);
    }
}
