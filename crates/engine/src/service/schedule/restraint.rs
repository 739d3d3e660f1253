//! How many rows of tenants that take too much go into steps that continue the answers of others: so many that these steps
//! become a little longer, by what such rows have been measured to add.

/// How much longer steps become on average. Where rows cost little, as in large models, nobody has to wait.
const MOST_ADDED: f64 = 0.25;
/// The same where the others take more than their share too: half of the time for each side.
const EVEN_ADDED: f64 = 1.0;
/// Every so many steps there are none, to see what a step takes without them.
const STEPS_PER_TRIAL: u64 = 4;
/// Less than this share of a step cannot be measured.
const LEAST_ADDED: f64 = 0.005;
/// The most that is saved up.
const MOST_SAVED: f64 = 64.0;

/// Learns what such rows cost.
#[derive(Debug, Default)]
pub(super) struct Restraint {
    /// What steps without such rows took lately; nothing is known at zero.
    usual_seconds: f64,
    /// What each such row added lately; nothing is known at zero.
    row_seconds: f64,
    /// Rows that there might have been and were not.
    saved: f64,
    steps: u64,
}

impl Restraint {
    /// The most such rows in the next step; with even shares where others take more than theirs too.
    pub(super) fn rows(&mut self, even: bool) -> usize {
        self.steps += 1;
        let added = if even { EVEN_ADDED } else { MOST_ADDED };
        let fitting = match self.row_seconds > 0.0 {
            true => added * self.usual_seconds / self.row_seconds,
            false => added,
        };
        self.saved = (self.saved + fitting).min(MOST_SAVED);
        if self.steps.is_multiple_of(STEPS_PER_TRIAL) { 0 } else { self.saved as usize }
    }

    /// So many were put into the step.
    pub(super) fn spend(&mut self, rows: usize) {
        self.saved -= rows as f64;
    }

    /// What a step with so many took.
    pub(super) fn learn(&mut self, rows: usize, seconds: f64) {
        let average = |before: f64, new: f64| if before == 0.0 { new } else { 0.8 * before + 0.2 * new };
        if rows == 0 {
            self.usual_seconds = average(self.usual_seconds, seconds);
        } else if self.usual_seconds > 0.0 {
            let added = (seconds - self.usual_seconds).max(LEAST_ADDED * self.usual_seconds);
            self.row_seconds = average(self.row_seconds, added / rows as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows on average, and how much longer steps become by them, where a step takes a second and each row `row_seconds`.
    fn steady(row_seconds: f64, even: bool) -> (f64, f64) {
        let mut restraint = Restraint::default();
        let mut total = 0;
        for step in 0..2000 {
            let rows = restraint.rows(even);
            restraint.spend(rows);
            restraint.learn(rows, 1.0 + row_seconds * rows as f64);
            total += if step < 1000 { 0 } else { rows };
        }
        (total as f64 / 1000.0, row_seconds * total as f64 / 1000.0)
    }

    #[test]
    fn steps_become_a_quarter_longer_whatever_a_row_costs() {
        for row_seconds in [0.05, 0.3, 0.7, 2.0, 10.0] {
            let (rows, longer) = steady(row_seconds, false);
            assert!(rows > 0.0 && (0.2..=0.26).contains(&longer), "{row_seconds}: {rows} rows, {longer} longer");
            let (_, longer) = steady(row_seconds, true);
            assert!((0.9..=1.01).contains(&longer), "{row_seconds}: {longer} longer");
        }
    }

    #[test]
    fn rows_that_cost_nothing_are_many() {
        assert!(steady(0.0, false).0 > 30.0);
    }
}
