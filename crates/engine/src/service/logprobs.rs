//! How likely tokens are, as the model sees it.

use std::cmp::Ordering;

use super::{Alternative, TokenLogprobs};

/// The log probability of `token` and of the `count` most likely ones; among equals the lower id comes first.
pub(super) fn logprobs(logits: &[f32], token: u32, count: u32) -> TokenLogprobs {
    let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    // The library's own functions, so that every machine says the same.
    let total: f64 = logits.iter().map(|logit| libm::exp(f64::from(*logit) - f64::from(best))).sum();
    let log_total = libm::log(total) + f64::from(best);
    let log_probability = |token: u32| (f64::from(logits[token as usize]) - log_total) as f32;
    let order = |one: &u32, other: &u32| -> Ordering {
        logits[*other as usize].total_cmp(&logits[*one as usize]).then(one.cmp(other))
    };
    let count = (count as usize).min(logits.len());
    let mut tokens: Vec<u32> = (0..logits.len() as u32).collect();
    if count > 0 && count < tokens.len() {
        tokens.select_nth_unstable_by(count - 1, order);
    }
    tokens.truncate(count);
    tokens.sort_unstable_by(order);
    let alternatives = tokens.into_iter().map(|token| Alternative { token, log_probability: log_probability(token) });
    TokenLogprobs { log_probability: log_probability(token), alternatives: alternatives.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_probabilities_are_of_the_raw_logits_and_ranked() {
        let found = logprobs(&[0.0, 2.0, 2.0, f32::NEG_INFINITY], 0, 3);
        let total = 1.0 + 2.0 * 2.0_f64.exp();
        let expected = [(1, 2.0 - total.ln()), (2, 2.0 - total.ln()), (0, -total.ln())];
        assert!((f64::from(found.log_probability) + total.ln()).abs() < 1e-6);
        for (alternative, (token, log_probability)) in found.alternatives.iter().zip(expected) {
            assert_eq!(alternative.token, token);
            assert!((f64::from(alternative.log_probability) - log_probability).abs() < 1e-6);
        }
        assert_eq!(found.alternatives.len(), 3);
        assert!(logprobs(&[1.0], 0, 0).alternatives.is_empty());
        assert_eq!(logprobs(&[1.0], 0, 9).alternatives.len(), 1);
    }
}
