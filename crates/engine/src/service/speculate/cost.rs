//! What a step of so many rows costs: measured while the service runs, so that draft tokens are computed only where they
//! make it faster. The time decides how much is computed ahead, and never a token.

use crate::service::StepCosts;

/// Rows of the largest step that is measured.
const MOST_ROWS: usize = 128;
/// Where nothing is measured, a step of twice as many rows is assumed to cost so much more: little, so that it is tried.
const UNTRIED: f64 = 0.15;
/// Measured steps after which an old measurement counts no more: it may have been an accident.
const MEMORY_STEPS: u64 = 1024;
/// What the latest measurement counts beside the earlier ones.
const LATEST: f64 = 0.25;

/// Seconds of steps by their rows.
#[derive(Debug)]
pub(crate) struct MeasuredCosts {
    kind: StepCosts,
    /// By rows: seconds, and in which step they were last measured.
    steps: Vec<Option<(f64, u64)>>,
    count: u64,
}

impl MeasuredCosts {
    pub(crate) fn new(kind: StepCosts) -> MeasuredCosts {
        MeasuredCosts { kind, steps: vec![None; MOST_ROWS + 1], count: 0 }
    }

    /// Takes in a step that did nothing but continue answers.
    pub(crate) fn record(&mut self, rows: usize, seconds: f64) {
        let Some(known) = self.steps.get_mut(rows) else { return };
        self.count += 1;
        let average = match *known {
            // A pause of the machine is not what a step costs.
            Some((before, _)) => before + LATEST * (seconds.clamp(0.5 * before, 2.0 * before) - before),
            None => seconds,
        };
        *known = Some((average, self.count));
    }

    /// The most rows worth a try: twice as many as were ever measured, since the cost of more is unknown.
    pub(crate) fn most_rows(&self) -> usize {
        match self.kind {
            StepCosts::Measured => 2 * self.known().last().map_or(1, |(rows, _)| rows),
            StepCosts::PerRow(_) => usize::MAX,
        }
    }

    /// What a step of so many rows costs: measured, or between the measured ones beside it.
    pub(crate) fn of(&self, rows: usize) -> f64 {
        if let StepCosts::PerRow(share) = self.kind {
            return 1.0 + share * (rows - 1) as f64;
        }
        let below = self.known().take_while(|(known, _)| *known <= rows).last();
        let above = self.known().find(|(known, _)| *known >= rows);
        match (below, above) {
            (Some((low, low_cost)), Some((high, high_cost))) if high > low => {
                low_cost + (high_cost - low_cost) * (rows - low) as f64 / (high - low) as f64
            }
            (Some((low, cost)), _) => cost * (1.0 + UNTRIED * (rows as f64 / low as f64 - 1.0)),
            (None, Some((_, cost))) => cost,
            (None, None) => 1.0,
        }
    }

    /// What a token of a draft model costs, if it takes so many seconds.
    pub(crate) fn of_draft_token(&self, seconds: f64) -> f64 {
        match self.kind {
            StepCosts::Measured => seconds,
            StepCosts::PerRow(share) => share,
        }
    }

    /// What counts of the measurements, by rows.
    fn known(&self) -> impl Iterator<Item = (usize, f64)> {
        let recent = |measured: u64| self.count - measured < MEMORY_STEPS;
        let steps = self.steps.iter().enumerate();
        steps.filter_map(move |(rows, step)| step.filter(|(_, at)| recent(*at)).map(|(cost, _)| (rows, cost)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_measured_or_between_measured_ones() {
        let mut costs = MeasuredCosts::new(StepCosts::Measured);
        assert_eq!((costs.of(1), costs.of(9), costs.most_rows()), (1.0, 1.0, 2));
        costs.record(1, 10.0);
        assert_eq!((costs.of(1), costs.of(2), costs.most_rows()), (10.0, 11.5, 2));
        costs.record(2, 12.0);
        costs.record(6, 20.0);
        assert_eq!((costs.of(4), costs.of(6), costs.most_rows()), (16.0, 20.0, 12));
        costs.record(1000, 1.0);
        assert_eq!(costs.most_rows(), 12);
    }

    #[test]
    fn a_pause_is_forgotten() {
        let mut costs = MeasuredCosts::new(StepCosts::Measured);
        costs.record(1, 10.0);
        costs.record(1, 1000.0);
        assert_eq!(costs.of(1), 12.5);
        costs.record(4, 1000.0);
        assert!(costs.of(4) > 900.0);
        (0..MEMORY_STEPS).for_each(|_| costs.record(1, 10.0));
        assert!(costs.of(4) < 20.0, "{}", costs.of(4));
    }
}
