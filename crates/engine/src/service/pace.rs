//! How many rows of prompts go beside answers, so that these keep coming evenly.

/// Steps with fewer rows say little of what one more costs: reading the weights is most of it.
const TELLING_ROWS: usize = 8;
/// As few as this many are worth a step.
const LEAST_ROWS: u32 = 8;

/// Learns what a row costs.
#[derive(Debug)]
pub(super) struct PromptPace {
    pub(super) most_rows: u32,
    /// How long rows of prompts may take in a step that also continues answers.
    pub(super) seconds: f64,
    /// What a row took lately; nothing is known at zero.
    pub(super) row_seconds: f64,
}

impl PromptPace {
    /// Takes in what a step took; returns how many rows of prompts the next one may have.
    pub(super) fn rows(&mut self, rows: usize, seconds: f64) -> u32 {
        if rows >= TELLING_ROWS {
            let each = seconds / rows as f64;
            self.row_seconds = if self.row_seconds == 0.0 { each } else { 0.8 * self.row_seconds + 0.2 * each };
        }
        // A float that is too large becomes the largest number.
        let fitting = if self.row_seconds > 0.0 { (self.seconds / self.row_seconds) as u32 } else { LEAST_ROWS };
        fitting.max(LEAST_ROWS).min(self.most_rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_rows_are_few_and_fast_rows_are_many() {
        let mut pace = PromptPace { most_rows: 128, seconds: 0.2, row_seconds: 0.0 };
        assert_eq!(pace.rows(1, 0.5), 8, "one row says nothing");
        assert_eq!(pace.rows(20, 0.2), 20);
        for _ in 0..50 {
            pace.rows(10, 1.0);
        }
        assert_eq!(pace.rows(10, 1.0), 8);
        for _ in 0..90 {
            pace.rows(100, 0.001);
        }
        assert_eq!(pace.rows(100, 0.001), 128);
        let mut narrow = PromptPace { most_rows: 3, seconds: 0.2, row_seconds: 0.0 };
        assert_eq!(narrow.rows(10, 0.1), 3);
    }
}
