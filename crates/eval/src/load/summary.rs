//! What a run shows: percentiles, speed, errors, fairness.

use std::collections::BTreeMap;

use super::record::{Outcome, Record};
use super::workload::Behaviour;

/// Percentiles of a quantity; all 0 when it was never seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quantiles {
    /// How often it was seen.
    pub count: usize,
    /// Half of all are at most this.
    pub p50: f64,
    /// 95 % of all are at most this.
    pub p95: f64,
    /// 99 % of all are at most this.
    pub p99: f64,
    /// The largest.
    pub most: f64,
}

/// What one tenant got.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TenantSummary {
    /// Requests it sent.
    pub sent: u64,
    /// Requests that were answered whole.
    pub done: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Tokens computed for it within the run, prompts and answers.
    pub served: f64,
    /// Its times to the first token, in seconds.
    pub first: Quantiles,
}

/// A run as numbers; times in seconds.
#[derive(Clone, Debug)]
pub struct Summary {
    /// How long requests were sent, or until the last had ended.
    pub window: f64,
    /// Requests that were sent.
    pub sent: usize,
    /// Requests that were answered whole.
    pub done: usize,
    /// Requests whose client left on purpose.
    pub cancelled: usize,
    /// Requests that were refused with status 429.
    pub refused: usize,
    /// Requests that ended in another way.
    pub failed: usize,
    /// Responses by status; 0 where there was none.
    pub statuses: BTreeMap<u16, usize>,
    /// Other ends by what happened.
    pub errors: BTreeMap<String, usize>,
    /// From sending to the first token; of clients that read at once, like those below.
    pub first: Quantiles,
    /// From token to token.
    pub gap: Quantiles,
    /// From sending to the end of a whole answer.
    pub total: Quantiles,
    /// Tokens of answers per second, all streams together.
    pub tokens_per_second: f64,
    /// Requests answered whole per second.
    pub done_per_second: f64,
    /// By tenant.
    pub tenants: Vec<TenantSummary>,
    /// Jain's index over what tenants were served: 1 is equal, one over their number is all for one.
    pub fairness: f64,
}

impl Quantiles {
    /// Of these values.
    pub fn of(mut values: Vec<f64>) -> Quantiles {
        values.sort_by(f64::total_cmp);
        let Some(&most) = values.last() else { return Quantiles::default() };
        let at = |part: f64| values[((part * values.len() as f64).ceil() as usize).clamp(1, values.len()) - 1];
        Quantiles { count: values.len(), p50: at(0.5), p95: at(0.95), p99: at(0.99), most }
    }
}

impl Summary {
    /// Of a run in which requests were sent for `window` seconds, or until the last had ended when that is `None`.
    pub fn of(records: &[Record], window: Option<f64>, tenants: usize) -> Summary {
        let last = records.iter().map(|record| record.start + record.total).fold(0.0, f64::max);
        let window = window.unwrap_or(last).max(1e-9);
        let count = |is: &dyn Fn(&Record) -> bool| records.iter().filter(|record| is(record)).count();
        let (mut statuses, mut errors) = (BTreeMap::new(), BTreeMap::new());
        for record in records {
            *statuses.entry(record.status).or_default() += 1;
            if let (true, Outcome::Error(problem)) = (record.is_failed(), &record.outcome) {
                *errors.entry(problem.clone()).or_default() += 1;
            }
        }
        let mut by_tenant = vec![TenantSummary::default(); tenants.max(1)];
        for (tenant, summary) in by_tenant.iter_mut().enumerate() {
            *summary = tenant_summary(records.iter().filter(|record| record.tenant == tenant), window);
        }
        let done = |record: &Record| record.outcome == Outcome::Done;
        let prompt = |record: &&Record| record.behaviour != Behaviour::Slow;
        let fairness = jain(&by_tenant.iter().map(|tenant| tenant.served).collect::<Vec<_>>());
        Summary {
            window,
            sent: records.len(),
            done: count(&done),
            cancelled: count(&|record| record.outcome == Outcome::Cancelled),
            refused: count(&Record::is_refused),
            failed: count(&Record::is_failed),
            statuses,
            errors,
            first: Quantiles::of(records.iter().filter(prompt).filter_map(|record| record.first).collect()),
            gap: Quantiles::of(records.iter().filter(prompt).flat_map(|record| record.gaps.clone()).collect()),
            total: Quantiles::of(
                records.iter().filter(prompt).filter(|record| done(record)).map(|record| record.total).collect(),
            ),
            tokens_per_second: records.iter().map(|record| answered(record, window)).sum::<f64>() / window,
            done_per_second: count(&|record| done(record) && record.start + record.total <= window) as f64 / window,
            tenants: by_tenant,
            fairness,
        }
    }
}

/// Tokens of an answer that came within the window. Text may come in fewer pieces than tokens; each counts alike.
fn answered(record: &Record, window: f64) -> f64 {
    let (mut all, mut within) = (0u64, 0u64);
    for time in record.arrivals() {
        all += 1;
        within += u64::from(time <= window);
    }
    if all == 0 { 0.0 } else { record.tokens as f64 * within as f64 / all as f64 }
}

fn tenant_summary<'a>(records: impl Iterator<Item = &'a Record>, window: f64) -> TenantSummary {
    let (mut summary, mut firsts) = (TenantSummary::default(), Vec::new());
    for record in records {
        summary.sent += 1;
        summary.done += u64::from(record.outcome == Outcome::Done);
        summary.refused += u64::from(record.is_refused());
        let computed = record.arrivals().next().is_some_and(|first| first <= window);
        let prompt = record.prompt_tokens.unwrap_or(u64::from(record.words));
        summary.served += answered(record, window) + if computed { prompt as f64 } else { 0.0 };
        firsts.extend(record.first);
    }
    summary.first = Quantiles::of(firsts);
    summary
}

/// Jain's index of fairness: 1 when all are equal, one over their number when one has everything.
pub fn jain(shares: &[f64]) -> f64 {
    let (sum, squares): (f64, f64) = (shares.iter().sum(), shares.iter().map(|share| share * share).sum());
    if squares > 0.0 { sum * sum / (shares.len() as f64 * squares) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::record;
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_seen() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(Quantiles::of(values), Quantiles { count: 200, p50: 100.0, p95: 190.0, p99: 198.0, most: 200.0 });
        assert_eq!(Quantiles::of(vec![3.0]), Quantiles { count: 1, p50: 3.0, p95: 3.0, p99: 3.0, most: 3.0 });
        assert_eq!(Quantiles::of(Vec::new()), Quantiles::default());
    }

    #[test]
    fn fairness_is_between_one_and_its_part() {
        for (shares, expected) in [(vec![2.0, 2.0], 1.0), (vec![1.0, 0.0, 0.0, 0.0], 0.25), (vec![0.0], 1.0)] {
            assert!((jain(&shares) - expected).abs() < 1e-12, "{shares:?}");
        }
    }

    #[test]
    fn a_run_is_counted() {
        let mut records = vec![record(0), record(1), record(2), record(3)];
        records[1].tenant = 1;
        records[2].status = 429;
        records[2].outcome = Outcome::Error("busy".to_owned());
        (records[2].first, records[2].gaps) = (None, Vec::new());
        records[3].behaviour = Behaviour::Slow;
        records[3].outcome = Outcome::Error("cut".to_owned());
        // Two texts of each stream come within 1.7 s.
        let summary = Summary::of(&records, Some(1.7), 2);
        assert_eq!((summary.sent, summary.done, summary.cancelled, summary.refused, summary.failed), (4, 2, 0, 1, 1));
        assert_eq!(summary.statuses, BTreeMap::from([(200, 3), (429, 1)]));
        assert_eq!(summary.errors, BTreeMap::from([("cut".to_owned(), 1)]));
        assert_eq!((summary.first.count, summary.gap.count, summary.total.count), (2, 4, 2));
        assert!((summary.tokens_per_second - 6.0 / 1.7).abs() < 1e-9);
        assert_eq!(summary.done_per_second, 0.0);
        let served: Vec<f64> = summary.tenants.iter().map(|tenant| tenant.served).collect();
        assert_eq!(served, [22.0, 11.0]);
        assert!((summary.fairness - 0.9).abs() < 1e-9);
        assert_eq!(Summary::of(&records, None, 2).window, 2.0);
    }
}
