//! How far to guess ahead: further while guesses are right, not at all while they are not.

use super::GuessRoom;

/// Adapts to what guesses were worth.
#[derive(Debug)]
pub(in crate::service) struct Depth {
    depth: usize,
    /// Share of guesses that were right, the latest counting most.
    right: f32,
    /// Chances to guess that are still let pass.
    pause: u32,
    /// How long the last pause was.
    last_pause: u32,
}

const FIRST_DEPTH: usize = 4;
const FIRST_PAUSE: u32 = 16;
const LONGEST_PAUSE: u32 = 512;
/// What is assumed before anything is known, and after a pause.
const ASSUMED_RIGHT: f32 = 0.6;

impl Default for Depth {
    fn default() -> Depth {
        Depth { depth: FIRST_DEPTH, right: ASSUMED_RIGHT, pause: 0, last_pause: FIRST_PAUSE / 2 }
    }
}

impl Depth {
    /// How many tokens to guess now.
    pub(super) fn wish(&mut self, room: GuessRoom) -> usize {
        if self.pause > 0 {
            self.pause -= 1;
            return 0;
        }
        if self.right < worth(room.streams) { 0 } else { self.depth.min(room.most) }
    }

    /// Takes in how a guess went.
    pub(super) fn learn(&mut self, guessed: usize, right: usize) {
        if guessed == 0 {
            return;
        }
        self.right = 0.75 * self.right + 0.25 * right as f32 / guessed as f32;
        // Twice as far after a success, and a little beyond what was right after a failure.
        self.depth = if right == guessed { (self.depth * 2).min(64) } else { (right + 1).max(2) };
        if self.right < worth(1) {
            self.last_pause = (self.last_pause * 2).min(LONGEST_PAUSE);
            *self = Depth { pause: self.last_pause, last_pause: self.last_pause, ..Depth::default() };
        } else if self.right > ASSUMED_RIGHT {
            self.last_pause = FIRST_PAUSE / 2;
        }
    }
}

/// The share of right guesses below which a row is better left out. Alone, a second row costs about a third of the
/// first, because the weights are read once; beside others the weights are paid for, and a row costs what it is worth.
fn worth(streams: usize) -> f32 {
    1.0 - 0.65 / streams.max(1) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: GuessRoom = GuessRoom { most: 16, streams: 1 };

    #[test]
    fn right_guesses_go_further_and_wrong_ones_stop() {
        let mut depth = Depth::default();
        for expected in [4, 8, 16, 16] {
            let wish = depth.wish(ALONE);
            assert_eq!(wish, expected);
            depth.learn(wish, wish);
        }
        let mut guessed = 0;
        for _ in 0..2000 {
            let wish = depth.wish(ALONE);
            guessed += wish;
            depth.learn(wish, 0);
        }
        assert!(guessed < 120, "{guessed} wrong guesses in 2000 steps");
        // It tries again now and then, and comes back when the text repeats itself.
        let back: usize = (0..1200).map(|_| depth.wish(ALONE)).inspect(|_| ()).sum();
        assert!(back > 0);
    }

    #[test]
    fn rows_are_dearer_in_company() {
        let mut depth = Depth::default();
        assert!(depth.wish(ALONE) > 0);
        assert_eq!(depth.wish(GuessRoom { most: 4, streams: 4 }), 0);
        (0..20).for_each(|_| depth.learn(4, 4));
        assert_eq!(depth.wish(GuessRoom { most: 2, streams: 4 }), 2);
    }
}
