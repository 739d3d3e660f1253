//! Which tenants take too much, and how many of their rows go into steps that continue the answers of others: so many that these
//! steps become a little longer, by what such rows have been measured to add.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::sequence::Sequence;
use super::tenants::Tenants;
use crate::service::{JobId, Tenant};

/// Who wants so many times as many rows as another tenant has to wait for it.
const FAR_MORE: f64 = 2.0;

/// How much longer steps become on average. Where rows cost little, as in large models, nobody has to wait.
const MOST_ADDED: f64 = 0.25;
/// The same where the others take more than their share too: half of the time for each side.
const EVEN_ADDED: f64 = 1.0;
/// How many times as many as that may be in one step, if others had fewer: what was saved up does not come all at once.
const MOST_AT_ONCE: f64 = 2.0;
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
        let at_once = (MOST_AT_ONCE * fitting).max(1.0);
        if self.steps.is_multiple_of(STEPS_PER_TRIAL) { 0 } else { self.saved.min(at_once) as usize }
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

/// Divides sequences into those that get all the rows there are for them, and those of tenants that took more than their
/// share of the time: these get a few, so that the others' tokens are not late, and have turns. Where all took too much, they
/// are those who want far more rows than another. Nobody is restrained for others that are less urgent.
pub(super) fn divide(
    mut ready: Vec<JobId>,
    sequences: &BTreeMap<JobId, Sequence>,
    tenants: &Tenants,
) -> (Vec<JobId>, Vec<JobId>) {
    let work = |id: &JobId| &sequences[id].work;
    let took_too_much = |id: &JobId| tenants.took_too_much(work(id).tenant);
    let mut wanted: BTreeMap<Tenant, f64> = BTreeMap::new();
    for id in &ready {
        let tenant = work(id).tenant;
        *wanted.entry(tenant).or_default() += sequences[id].remaining() as f64 / tenants.weight(tenant);
    }
    let least = match ready.iter().all(took_too_much) {
        true => FAR_MORE * wanted.values().copied().fold(f64::INFINITY, f64::min),
        false => 0.0,
    };
    let is_heavy = |id: &JobId| took_too_much(id) && wanted[&work(id).tenant] >= least;
    let urgent = ready.iter().filter(|id| !is_heavy(id)).map(|id| work(id).priority).max();
    let mut restrained = ready.clone();
    restrained.retain(|id| is_heavy(id) && urgent.is_some_and(|urgent| work(id).priority <= urgent));
    restrained.sort_by_key(|id| (Reverse(work(id).priority), sequences[id].planned, *id));
    ready.retain(|id| !restrained.contains(id));
    (ready, restrained)
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
    fn what_was_saved_up_does_not_come_all_at_once() {
        let mut restraint = Restraint::default();
        for _ in 0..100 {
            let rows = restraint.rows(false).min(1);
            restraint.spend(rows);
            restraint.learn(rows, 1.0 + 0.1 * rows as f64);
        }
        // Two and a half fit into a step, as far as averages are exact; more were saved.
        assert!(restraint.saved > 30.0);
        let most = (0..8).map(|_| restraint.rows(false)).max();
        assert!(matches!(most, Some(4..=5)), "{most:?}");
    }

    #[test]
    fn rows_that_cost_nothing_are_many() {
        assert!(steady(0.0, false).0 > 30.0);
    }
}
