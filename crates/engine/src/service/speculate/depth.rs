//! How many draft tokens to compute: more while they are accepted, none while they are not.

use super::DraftBudget;

/// Adapts to how many draft tokens are accepted.
#[derive(Debug)]
pub(in crate::service) struct Depth {
    depth: usize,
    /// Share of draft tokens that were accepted, the latest counting most.
    acceptance: f32,
    /// Steps that are still left without draft tokens.
    pause: u32,
    /// How long the last pause was.
    last_pause: u32,
}

const FIRST_DEPTH: usize = 4;
const FIRST_PAUSE: u32 = 16;
const LONGEST_PAUSE: u32 = 512;
/// What is assumed before anything is known, and after a pause.
const ASSUMED_ACCEPTANCE: f32 = 0.6;

impl Default for Depth {
    fn default() -> Depth {
        Depth { depth: FIRST_DEPTH, acceptance: ASSUMED_ACCEPTANCE, pause: 0, last_pause: FIRST_PAUSE / 2 }
    }
}

impl Depth {
    /// How many draft tokens to compute now.
    pub(super) fn next(&mut self, budget: DraftBudget) -> usize {
        if self.pause > 0 {
            self.pause -= 1;
            return 0;
        }
        if self.acceptance < worth(budget.streams) { 0 } else { self.depth.min(budget.most) }
    }

    /// Takes in how many draft tokens were accepted.
    pub(super) fn learn(&mut self, drafted: usize, accepted: usize) {
        if drafted == 0 {
            return;
        }
        self.acceptance = 0.75 * self.acceptance + 0.25 * accepted as f32 / drafted as f32;
        // Twice as many after a success, and one more than were accepted after a failure.
        self.depth = if accepted == drafted { (self.depth * 2).min(64) } else { (accepted + 1).max(2) };
        if self.acceptance < worth(1) {
            self.last_pause = (self.last_pause * 2).min(LONGEST_PAUSE);
            *self = Depth { pause: self.last_pause, last_pause: self.last_pause, ..Depth::default() };
        } else if self.acceptance > ASSUMED_ACCEPTANCE {
            self.last_pause = FIRST_PAUSE / 2;
        }
    }
}

/// The acceptance below which a row is better left out. Alone, a second row costs about a third of the
/// first, because the weights are read once; beside others the weights are paid for, and a row costs what it is worth.
fn worth(streams: usize) -> f32 {
    1.0 - 0.65 / streams.max(1) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: DraftBudget = DraftBudget { most: 16, streams: 1 };

    #[test]
    fn accepted_drafts_grow_and_rejected_ones_stop() {
        let mut depth = Depth::default();
        for expected in [4, 8, 16, 16] {
            let next = depth.next(ALONE);
            assert_eq!(next, expected);
            depth.learn(next, next);
        }
        let mut drafted = 0;
        for _ in 0..2000 {
            let next = depth.next(ALONE);
            drafted += next;
            depth.learn(next, 0);
        }
        assert!(drafted < 120, "{drafted} rejected draft tokens in 2000 steps");
        // It tries again now and then, and comes back when the text repeats itself.
        let back: usize = (0..1200).map(|_| depth.next(ALONE)).inspect(|_| ()).sum();
        assert!(back > 0);
    }

    #[test]
    fn rows_cost_more_beside_others() {
        let mut depth = Depth::default();
        assert!(depth.next(ALONE) > 0);
        assert_eq!(depth.next(DraftBudget { most: 4, streams: 4 }), 0);
        (0..20).for_each(|_| depth.learn(4, 4));
        assert_eq!(depth.next(DraftBudget { most: 2, streams: 4 }), 2);
    }
}
