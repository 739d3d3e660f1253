//! Speculation: draft tokens ahead of an answer, so that one step can compute several of its tokens.
//!
//! A draft token costs a row and never changes an answer: it is accepted only if the sampler chooses it in its place.

mod acceptance;
mod cost;
mod draft;
mod lengths;
mod lookup;
mod pauses;

pub(crate) use self::cost::MeasuredCosts;
pub(super) use self::draft::{DraftModel, DraftRequest};
pub(crate) use self::lengths::draft_lengths;
pub(super) use self::lengths::draft_model_length;

use self::acceptance::{Acceptance, LookupAcceptance};
use self::lookup::{Lookup, Place};
use self::pauses::Pauses;

/// Where the draft tokens of one job come from, and how many of them were accepted.
pub(crate) struct Speculator {
    lookup: Lookup,
    lookup_acceptance: LookupAcceptance,
    /// What was proposed last.
    followed: Option<Followed>,
    draft_acceptance: Acceptance,
    draft_pauses: Pauses,
    /// The draft tokens in the current step are those of the draft model.
    asked_draft: bool,
}

/// Tokens that may come next, with the probability of each that it and those before it are accepted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Proposal {
    pub(crate) tokens: Vec<u32>,
    pub(crate) probabilities: Vec<f32>,
}

/// A place that was proposed to continue from, and how long the text was then.
#[derive(Clone, Copy, Debug)]
struct Followed {
    place: Place,
    length: usize,
}

/// What is assumed of a draft model at the start of an answer.
const ASSUMED_OF_DRAFT_MODEL: f32 = 0.7;

impl Default for Speculator {
    fn default() -> Speculator {
        Speculator {
            lookup: Lookup::default(),
            lookup_acceptance: LookupAcceptance::default(),
            followed: None,
            draft_acceptance: Acceptance::assumed(ASSUMED_OF_DRAFT_MODEL),
            draft_pauses: Pauses::default(),
            asked_draft: false,
        }
    }
}

impl Speculator {
    /// Up to `most` tokens that followed where the text ended like this before. What it proposed last is compared with
    /// what came, whether it was computed or not, so looking costs no row.
    pub(crate) fn look_up(&mut self, tokens: &[u32], most: usize) -> Proposal {
        self.asked_draft = false;
        let current = self.followed.take().map(|followed| self.follow(followed, tokens));
        self.lookup.extend(tokens);
        let found = self.lookup.find(tokens);
        // Of two places that are equally alike, the one whose text is being repeated already. After a change it continues,
        // as far as that can be known, with the token after the changed one.
        let longer = |found: &Place| current.is_none_or(|current| found.alike > current.alike);
        let Some(place) = found.filter(longer).or(current) else { return Proposal::default() };
        self.followed = Some(Followed { place, length: tokens.len() });
        Proposal {
            tokens: (0..most).map(|ahead| place.token(tokens, tokens.len(), ahead)).collect(),
            probabilities: self.lookup_acceptance.probabilities(place.alike, most),
        }
    }

    /// Learns from what came after a proposal; returns the same place, as far on as the text.
    fn follow(&mut self, Followed { place, length }: Followed, tokens: &[u32]) -> Place {
        for (ahead, token) in tokens[length..].iter().enumerate() {
            let accepted = place.token(tokens, length, ahead) == *token;
            self.lookup_acceptance.learn(place.alike + ahead, accepted);
            if !accepted {
                break;
            }
        }
        Place::new(tokens, place.next + tokens.len() - length)
    }

    /// Tokens that a constraint forces: all of them are accepted.
    pub(crate) fn forced(&mut self, mut tokens: Vec<u32>, most: usize) -> Proposal {
        self.asked_draft = false;
        tokens.truncate(most);
        Proposal { probabilities: vec![1.0; tokens.len()], tokens }
    }

    /// How many tokens the draft model should propose, if `best` says which number pays for an acceptance. Where none
    /// does, it is tried again now and then.
    pub(super) fn draft_length(&mut self, most: usize, best: impl Fn(f32) -> usize) -> usize {
        let length = self.draft_pauses.next(|| best(self.draft_acceptance.share())).min(most);
        self.asked_draft = length > 0;
        length
    }

    /// Of the last draft tokens, so many were computed and so many accepted.
    pub(super) fn learn(&mut self, drafted: usize, accepted: usize) {
        if self.asked_draft {
            (0..drafted.min(accepted + 1)).for_each(|index| self.draft_acceptance.learn(index < accepted));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_goes_on_after_a_changed_token() {
        let mut speculator = Speculator::default();
        let mut text: Vec<u32> = (1..=40).collect();
        text.extend(1..=20);
        assert_eq!(speculator.look_up(&text, 3).tokens, [21, 22, 23]);
        text.extend([21, 99]);
        assert_eq!(speculator.look_up(&text, 3).tokens, [23, 24, 25]);
        text.push(23);
        assert_eq!(speculator.look_up(&text, 3).tokens, [24, 25, 26]);
    }

    #[test]
    fn what_is_not_computed_is_learned_from_too() {
        let first = |speculator: &mut Speculator, text: &[u32]| {
            speculator.look_up(text, 1).probabilities.first().copied().unwrap_or(0.0)
        };
        let mut speculator = Speculator::default();
        // Each pair of tokens is followed by another token every time.
        let mut text = Vec::new();
        for other in 100..160 {
            text.extend([1, 2]);
            let now = first(&mut speculator, &text);
            assert!(other < 150 || now < 0.1, "{now}");
            text.push(other);
            first(&mut speculator, &text);
        }
        // The text repeats itself from now on.
        let mut speculator = Speculator::default();
        let text: Vec<u32> = [1, 2, 3, 4, 5].repeat(20);
        let probabilities: Vec<f32> = (1..text.len()).map(|end| first(&mut speculator, &text[..end])).collect();
        assert!(probabilities[6] < 0.5 && probabilities[90] > 0.95, "{probabilities:?}");
    }

    #[test]
    fn forced_tokens_are_certain() {
        let proposal = Speculator::default().forced(vec![7, 8, 9], 2);
        assert_eq!(proposal, Proposal { tokens: vec![7, 8], probabilities: vec![1.0, 1.0] });
    }
}
