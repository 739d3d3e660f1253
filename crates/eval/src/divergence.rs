//! How far a model's predictions are from those of a reference on the same text.

use cascadia_engine::{EngineError, Session};

use crate::perplexity::{Prediction, Score};
use crate::{EvalError, Perplexity, TextWindows};

/// A model beside its reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Divergence {
    /// The model's score.
    pub score: Perplexity,
    /// The reference's score.
    pub reference: Perplexity,
    /// Mean over tokens of the Kullback-Leibler divergence from the reference, in nats.
    pub divergence: f64,
    /// Share of tokens for which both rank the same token first.
    pub same_top: f64,
}

impl Divergence {
    /// By which share the perplexity has grown; negative when it has fallen.
    pub fn perplexity_growth(&self) -> f64 {
        self.score.perplexity / self.reference.perplexity - 1.0
    }

    /// Which share of the tokens that the reference ranked first are lost; negative when some are gained.
    pub fn top1_loss(&self) -> f64 {
        if self.reference.top1 > 0.0 { 1.0 - self.score.top1 / self.reference.top1 } else { 0.0 }
    }
}

/// What a reference predicted for every token of a text: its likeliest tokens, and the rest as one.
pub struct Reference {
    cut: TextWindows,
    tokens: Vec<u32>,
    expected: Vec<Expected>,
    score: Perplexity,
    vocabulary: usize,
}

/// Tokens of a prediction that a [`Reference`] remembers.
const KEPT: usize = 256;

impl Reference {
    /// Runs the reference over a text. `progress` hears (windows done, windows in all).
    pub fn record(
        session: &mut Session,
        tokens: &[u32],
        cut: TextWindows,
        mut progress: impl FnMut(usize, usize),
    ) -> Result<Reference, EvalError> {
        let windows = cut.cut(tokens)?;
        let (mut score, mut expected) = (Score::default(), Vec::new());
        for (done, window) in windows.iter().enumerate() {
            progress(done, windows.len());
            window.feed(session, |logits, target| {
                score.add(logits, target)?;
                expected.push(Expected::of(logits, target, KEPT)?);
                Ok(())
            })?;
        }
        progress(windows.len(), windows.len());
        let tokens = tokens[..windows.len() * cut.window].to_vec();
        Ok(Reference { cut, tokens, expected, score: score.finish(), vocabulary: session.spec().vocabulary })
    }

    /// The reference's score.
    pub fn score(&self) -> Perplexity {
        self.score
    }

    /// Compares a model with the first `windows` windows of the reference. The divergence is a little too small,
    /// because differences among unlikely tokens do not show. `progress` hears (windows done, windows in all).
    pub fn compare(
        &self,
        session: &mut Session,
        windows: usize,
        mut progress: impl FnMut(usize, usize),
    ) -> Result<Divergence, EvalError> {
        let vocabulary = session.spec().vocabulary;
        if vocabulary != self.vocabulary {
            let allowed = "that of the model to compare with";
            return Err(EvalError::Option { name: "vocabulary", value: vocabulary, allowed });
        }
        let cut = TextWindows { windows: windows.max(1), ..self.cut };
        let (mut sums, mut expected) = (Sums::default(), self.expected.iter());
        let windows = cut.cut(&self.tokens)?;
        for (done, window) in windows.iter().enumerate() {
            progress(done, windows.len());
            window.feed(session, |logits, target| {
                sums.add(expected.next().expect("one for every token"), logits, target)
            })?;
        }
        progress(windows.len(), windows.len());
        Ok(sums.finish())
    }
}

/// What the reference said about one token: its likeliest tokens with their log-probabilities, the likeliest first.
struct Expected {
    likely: Vec<(u32, f32)>,
    target: f64,
}

impl Expected {
    fn of(logits: &[f32], target: u32, kept: usize) -> Result<Expected, EngineError> {
        let prediction = Prediction::of(logits)?;
        let log_probability = |logit: f32| (f64::from(logit) - prediction.log_total) as f32;
        let mut likely: Vec<(u32, f32)> = (0..).zip(logits.iter().map(|&logit| log_probability(logit))).collect();
        if kept < likely.len() {
            likely.select_nth_unstable_by(kept, |a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            likely.truncate(kept);
        }
        if let Some(place) = likely.iter().position(|(id, _)| *id == prediction.top) {
            likely.swap(0, place);
        }
        Ok(Expected { likely, target: prediction.log_probability(logits, target) })
    }

    fn top(&self) -> Option<u32> {
        self.likely.first().map(|(id, _)| *id)
    }

    /// The Kullback-Leibler divergence of another prediction from this one; tokens that were not kept count as one.
    fn divergence(&self, logits: &[f32], other: &Prediction) -> f64 {
        let (mut sum, mut own_rest, mut other_rest) = (0.0, 1.0, 1.0);
        for &(id, own) in &self.likely {
            let (own, other) = (f64::from(own), other.log_probability(logits, id));
            let probability = own.exp();
            if probability > 0.0 {
                sum += probability * (own - other);
            }
            own_rest -= probability;
            other_rest -= other.exp();
        }
        if self.likely.len() < logits.len() && own_rest > ROUNDING && other_rest > ROUNDING {
            sum += own_rest * (own_rest / other_rest).ln();
        }
        sum
    }
}

/// Probabilities below this may be nothing but rounding.
const ROUNDING: f64 = 1e-6;

#[derive(Default)]
struct Sums {
    score: Score,
    reference: Score,
    divergence: f64,
    same_top: usize,
}

impl Sums {
    fn add(&mut self, expected: &Expected, logits: &[f32], target: u32) -> Result<(), EngineError> {
        let prediction = Prediction::of(logits)?;
        self.score.count(prediction.log_probability(logits, target), prediction.top == target);
        self.reference.count(expected.target, expected.top() == Some(target));
        self.divergence += expected.divergence(logits, &prediction);
        self.same_top += usize::from(expected.top() == Some(prediction.top));
        Ok(())
    }

    fn finish(&self) -> Divergence {
        let score = self.score.finish();
        let tokens = score.tokens as f64;
        Divergence {
            score,
            reference: self.reference.finish(),
            // Rounding can bring the mean of equal predictions below zero.
            divergence: (self.divergence / tokens).max(0.0),
            same_top: self.same_top as f64 / tokens,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divergence_matches_a_hand_computed_one() {
        let logits = |probabilities: [f32; 4]| probabilities.map(f32::ln);
        let (own, other) = (logits([0.1, 0.5, 0.2, 0.2]), logits([0.2, 0.4, 0.3, 0.1]));
        let term = |own: f64, other: f64| own * (own / other).ln();
        let exact = term(0.1, 0.2) + term(0.5, 0.4) + term(0.2, 0.3) + term(0.2, 0.1);
        let lumped = term(0.5, 0.4) + term(0.2, 0.3) + term(0.3, 0.3);
        for (kept, result) in [(4, exact), (9, exact), (2, lumped)] {
            let expected = Expected::of(&own, 2, kept).unwrap();
            let divergence = expected.divergence(&other, &Prediction::of(&other).unwrap());
            assert!((divergence - result).abs() < 1e-6, "{kept}: {divergence} instead of {result}");
            assert_eq!(expected.top(), Some(1));
            assert!((expected.target - 0.2_f64.ln()).abs() < 1e-6);
        }
    }
}
