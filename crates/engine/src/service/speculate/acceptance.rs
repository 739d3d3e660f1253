//! How often draft tokens are accepted, learned while an answer grows.

/// The share of draft tokens that were accepted, the latest counting most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acceptance {
    accepted: f32,
    tried: f32,
}

/// What a share that is only assumed counts, in draft tokens.
const ASSUMED_TRIALS: f32 = 3.0;
/// What a draft token counts after the next one.
const MEMORY: f32 = 0.97;

impl Acceptance {
    pub(super) fn assumed(share: f32) -> Acceptance {
        Acceptance { accepted: share * ASSUMED_TRIALS, tried: ASSUMED_TRIALS }
    }

    pub(super) fn share(self) -> f32 {
        self.accepted / self.tried
    }

    pub(super) fn learn(&mut self, accepted: bool) {
        self.accepted = MEMORY * self.accepted + f32::from(u8::from(accepted));
        self.tried = MEMORY * self.tried + 1.0;
    }
}

/// Acceptance of draft tokens from the text: the more tokens before them are alike, the more of them are accepted.
#[derive(Clone, Debug)]
pub(super) struct LookupAcceptance([Acceptance; CLASSES.len()]);

/// From how many tokens alike on a class begins, and what is assumed of it at the start of an answer.
const CLASSES: [(usize, f32); 8] = [(0, 0.1), (1, 0.15), (2, 0.25), (3, 0.4), (4, 0.5), (6, 0.65), (9, 0.8), (16, 0.9)];

impl Default for LookupAcceptance {
    fn default() -> LookupAcceptance {
        LookupAcceptance(CLASSES.map(|(_, share)| Acceptance::assumed(share)))
    }
}

impl LookupAcceptance {
    /// The probability of each of `count` draft tokens, the first after so many tokens that are alike, that it and all
    /// before it are accepted.
    pub(super) fn probabilities(&self, alike: usize, count: usize) -> Vec<f32> {
        let shares = (alike..alike + count).map(|alike| self.0[class(alike)].share());
        let product = |so_far: &mut f32, share: f32| {
            *so_far *= share;
            Some(*so_far)
        };
        shares.scan(1.0, product).collect()
    }

    pub(super) fn learn(&mut self, alike: usize, accepted: bool) {
        self.0[class(alike)].learn(accepted);
    }
}

fn class(alike: usize) -> usize {
    CLASSES.iter().rposition(|(from, _)| alike >= *from).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_what_happens_lately() {
        let mut acceptance = Acceptance::assumed(0.5);
        (0..100).for_each(|_| acceptance.learn(true));
        assert!(acceptance.share() > 0.99);
        (0..60).for_each(|_| acceptance.learn(false));
        assert!(acceptance.share() < 0.2);
    }

    #[test]
    fn probabilities_fall_with_every_token_and_rise_with_tokens_alike() {
        let acceptance = LookupAcceptance::default();
        let short = acceptance.probabilities(2, 20);
        assert!(short.windows(2).all(|pair| pair[1] < pair[0]));
        let long = acceptance.probabilities(16, 20);
        assert!(short.iter().zip(&long).all(|(short, long)| short < long));
        assert!(acceptance.probabilities(5, 0).is_empty());
    }

    #[test]
    fn classes_are_learned_apart() {
        let mut acceptance = LookupAcceptance::default();
        (0..50).for_each(|_| acceptance.learn(3, false));
        (0..50).for_each(|_| acceptance.learn(40, true));
        assert!(acceptance.probabilities(3, 1)[0] < 0.1);
        assert!(acceptance.probabilities(100, 1)[0] > 0.95);
        assert_eq!(acceptance.probabilities(2, 1), [0.25]);
    }
}
