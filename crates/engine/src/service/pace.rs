//! How many rows of prompts go into a step, so that tokens of answers come evenly and new requests start soon.

use super::schedule::PromptRows;

/// Steps with fewer rows say little of what one more costs: reading the weights is most of it.
const TELLING_ROWS: usize = 8;
/// The least in a step with answers. They make it about five times as long as one of answers alone, whatever the size of
/// the model, because both grow with it; with fewer, a prompt would pay for reading the weights too often.
const LEAST_BESIDE_ANSWERS: u32 = 24;
/// With fewer than this many, reading the weights would take more than a few hundredths of a step.
const LEAST_ALONE: u32 = 64;

/// Learns what a row costs.
#[derive(Debug)]
pub(super) struct PromptPace {
    pub(super) most: PromptRows,
    /// How long rows of prompts may take in one step.
    pub(super) seconds: f64,
    /// What a row took lately; nothing is known at zero.
    pub(super) row_seconds: f64,
}

impl PromptPace {
    /// Takes in what a step took; returns how many rows of prompts the next one may have.
    pub(super) fn rows(&mut self, rows: usize, seconds: f64) -> PromptRows {
        if rows >= TELLING_ROWS {
            let each = seconds / rows as f64;
            self.row_seconds = if self.row_seconds == 0.0 { each } else { 0.8 * self.row_seconds + 0.2 * each };
        }
        // A float that is too large becomes the largest number.
        let fitting = if self.row_seconds > 0.0 { (self.seconds / self.row_seconds) as u32 } else { 0 };
        PromptRows {
            alone: fitting.max(LEAST_ALONE).min(self.most.alone),
            beside_answers: fitting.max(LEAST_BESIDE_ANSWERS).min(self.most.beside_answers),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_rows_are_few_and_fast_rows_are_many() {
        let most = PromptRows { alone: 512, beside_answers: 128 };
        let mut pace = PromptPace { most, seconds: 0.2, row_seconds: 0.0 };
        let few = PromptRows { alone: 64, beside_answers: 24 };
        assert_eq!(pace.rows(1, 0.5), few, "one row says nothing");
        assert_eq!(pace.rows(40, 0.2), PromptRows { alone: 64, beside_answers: 40 });
        for _ in 0..50 {
            pace.rows(10, 1.0);
        }
        assert_eq!(pace.rows(10, 1.0), few);
        for _ in 0..90 {
            pace.rows(100, 0.001);
        }
        assert_eq!(pace.rows(100, 0.001), most);
        let narrow = PromptRows { alone: 5, beside_answers: 3 };
        assert_eq!(PromptPace { most: narrow, seconds: 0.2, row_seconds: 0.0 }.rows(10, 0.1), narrow);
    }
}
