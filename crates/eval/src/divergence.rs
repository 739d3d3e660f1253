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
                expected.push(Expected::of(logits, target)?);
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
        progress: impl FnMut(usize, usize),
    ) -> Result<Divergence, EvalError> {
        let mut sums = Sums::default();
        self.compare_each(session, windows, progress, |_, compared| sums.count(&compared))?;
        Ok(sums.finish())
    }

    /// Compares a model on the beginnings of all windows: one result for each length, over the tokens within it.
    pub fn compare_beginnings(
        &self,
        session: &mut Session,
        lengths: &[usize],
        progress: impl FnMut(usize, usize),
    ) -> Result<Vec<Divergence>, EvalError> {
        let mut sums: Vec<(usize, Sums)> = lengths.iter().map(|&length| (length, Sums::default())).collect();
        self.compare_each(session, self.cut.windows, progress, |position, compared| {
            sums.iter_mut().filter(|(length, _)| position < *length).for_each(|(_, sums)| sums.count(&compared));
        })?;
        Ok(sums.iter().map(|(_, sums)| sums.finish()).collect())
    }

    /// Compares a model token by token; `each` hears positions within windows.
    fn compare_each(
        &self,
        session: &mut Session,
        windows: usize,
        mut progress: impl FnMut(usize, usize),
        mut each: impl FnMut(usize, Compared),
    ) -> Result<(), EvalError> {
        let vocabulary = session.spec().vocabulary;
        if vocabulary != self.vocabulary {
            let allowed = "that of the model to compare with";
            return Err(EvalError::Option { name: "vocabulary", value: vocabulary, allowed });
        }
        let cut = TextWindows { windows: windows.max(1), ..self.cut };
        let windows = cut.cut(&self.tokens)?;
        for (done, window) in windows.iter().enumerate() {
            progress(done, windows.len());
            let mut expected = self.expected[done * cut.window..].iter().enumerate();
            window.feed(session, |logits, target| {
                let (position, expected) = expected.next().expect("one for every token");
                each(position, expected.compare(logits, target)?);
                Ok(())
            })?;
        }
        progress(windows.len(), windows.len());
        Ok(())
    }
}

/// What the reference said about one token.
pub(crate) struct Expected {
    /// Its likeliest tokens with their logits, the likeliest first.
    likely: Vec<(u32, f32)>,
    /// By how much these exceed log-probabilities.
    log_total: f64,
    /// The log-probability of the token that follows.
    target: f64,
}

/// One token that the reference and the model have predicted.
pub(crate) struct Compared {
    /// Log-probability of the token, and whether it was ranked first: by the model, and by the reference.
    own: (f64, bool),
    reference: (f64, bool),
    divergence: f64,
    same_top: bool,
}

impl Expected {
    /// Of a prediction of the reference.
    pub(crate) fn of(logits: &[f32], target: u32) -> Result<Expected, EngineError> {
        Expected::keeping(KEPT, logits, target)
    }

    fn keeping(kept: usize, logits: &[f32], target: u32) -> Result<Expected, EngineError> {
        let prediction = Prediction::of(logits)?;
        let mut likely: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
        if kept < likely.len() {
            likely.select_nth_unstable_by(kept, |a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            likely.truncate(kept);
            // There is one of these for every token of a text.
            likely.shrink_to_fit();
        }
        if let Some(place) = likely.iter().position(|(id, _)| *id == prediction.top) {
            likely.swap(0, place);
        }
        let log_total = prediction.log_total;
        Ok(Expected { likely, log_total, target: prediction.log_probability(logits, target) })
    }

    /// What the model says about the same token. Equal logits have no divergence at all.
    pub(crate) fn compare(&self, logits: &[f32], target: u32) -> Result<Compared, EngineError> {
        let prediction = Prediction::of(logits)?;
        Ok(Compared {
            own: (prediction.log_probability(logits, target), prediction.top == target),
            reference: (self.target, self.top() == Some(target)),
            divergence: self.divergence(logits, &prediction),
            same_top: self.top() == Some(prediction.top),
        })
    }

    fn top(&self) -> Option<u32> {
        self.likely.first().map(|(id, _)| *id)
    }

    /// The Kullback-Leibler divergence of another prediction from this one; tokens that were not kept count as one.
    fn divergence(&self, logits: &[f32], other: &Prediction) -> f64 {
        let (mut sum, mut own_rest, mut other_rest) = (0.0, 1.0, 1.0);
        for &(id, own) in &self.likely {
            let (own, other) = (f64::from(own) - self.log_total, other.log_probability(logits, id));
            let probability = libm::exp(own);
            if probability > 0.0 {
                sum += probability * (own - other);
            }
            own_rest -= probability;
            other_rest -= libm::exp(other);
        }
        if self.likely.len() < logits.len() && own_rest > ROUNDING && other_rest > ROUNDING {
            sum += own_rest * libm::log(own_rest / other_rest);
        }
        sum
    }
}

/// Probabilities below this may be nothing but rounding.
const ROUNDING: f64 = 1e-6;

/// Sums over compared tokens.
#[derive(Default)]
pub(crate) struct Sums {
    score: Score,
    reference: Score,
    divergence: f64,
    same_top: usize,
}

impl Sums {
    pub(crate) fn count(&mut self, compared: &Compared) {
        self.score.count(compared.own.0, compared.own.1);
        self.reference.count(compared.reference.0, compared.reference.1);
        self.divergence += compared.divergence;
        self.same_top += usize::from(compared.same_top);
    }

    /// What was found about at least one token.
    pub(crate) fn finish(&self) -> Divergence {
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
        let logits = |probabilities: [f32; 4]| probabilities.map(libm::logf);
        let (own, other) = (logits([0.1, 0.5, 0.2, 0.2]), logits([0.2, 0.4, 0.3, 0.1]));
        let term = |own: f64, other: f64| own * libm::log(own / other);
        let exact = term(0.1, 0.2) + term(0.5, 0.4) + term(0.2, 0.3) + term(0.2, 0.1);
        let lumped = term(0.5, 0.4) + term(0.2, 0.3) + term(0.3, 0.3);
        for (kept, result) in [(4, exact), (9, exact), (2, lumped)] {
            let expected = Expected::keeping(kept, &own, 2).unwrap();
            let divergence = expected.divergence(&other, &Prediction::of(&other).unwrap());
            assert!((divergence - result).abs() < 1e-6, "{kept}: {divergence} instead of {result}");
            assert_eq!(expected.top(), Some(1));
            assert!((expected.target - libm::log(0.2)).abs() < 1e-6);
        }
    }

    #[test]
    fn equal_predictions_have_exactly_no_divergence() {
        // Logits of all sizes, more than are kept.
        let logits: Vec<f32> = (0..1000).map(|id| ((id * 7919 % 1000) as f32).sqrt() * 0.37 - 3.0).collect();
        let (mut sums, expected) = (Sums::default(), Expected::of(&logits, 5).unwrap());
        let compared = expected.compare(&logits, 5).unwrap();
        assert_eq!((compared.divergence, compared.same_top), (0.0, true));
        sums.count(&compared);
        let found = sums.finish();
        assert_eq!((found.divergence, found.perplexity_growth(), found.same_top), (0.0, 0.0, 1.0));
    }
}
