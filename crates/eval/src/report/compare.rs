//! Two reports of the same measurement, value by value.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use serde::Serialize;

use super::number::short;
use super::table::{NOTHING, aligned};
use super::{Better, Metric, Report};
use crate::EvalError;

/// How the values of a report differ from those of an earlier one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// By which share of the earlier value a value may be worse.
    pub tolerance: f64,
    /// Every value of either report.
    pub changes: Vec<Change>,
}

/// One value, before and after.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The name of the metric.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// The series.
    pub series: String,
    /// The place on the axis.
    pub at: f64,
    /// The value of the earlier report, if it has one.
    pub before: Option<f64>,
    /// The value of the later report, if it has one.
    pub after: Option<f64>,
    /// What to think of it.
    pub verdict: Verdict,
}

/// What to think of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Within the tolerance.
    Same,
    /// Better by more than the tolerance.
    Better,
    /// Worse by more than the tolerance.
    Worse,
    /// Not measured any more.
    Missing,
    /// Not measured before.
    New,
}

impl Comparison {
    /// Compares a report, which errors name by its file, with an earlier one.
    pub fn of(before: &Report, (path, after): (&Path, &Report), tolerance: f64) -> Result<Comparison, EvalError> {
        let wrong = |problem: String| Err(EvalError::Report { path: path.to_path_buf(), problem });
        if before.measurement != after.measurement {
            return wrong(format!("it is a report of {}, the other is of {}", after.measurement, before.measurement));
        }
        let found: HashMap<Key<'_>, f64> = values(after).map(|(key, _, value)| (key, value)).collect();
        let known: HashSet<Key<'_>> = values(before).map(|(key, _, _)| key).collect();
        let old = values(before)
            .map(|(key, metric, value)| change(key, metric, (Some(value), found.get(&key).copied()), tolerance));
        let new = values(after).filter(|(key, _, _)| !known.contains(key));
        let new = new.map(|(key, metric, value)| change(key, metric, (None, Some(value)), tolerance));
        let changes: Vec<Change> = old.chain(new).collect();
        if !changes.iter().any(|change| change.before.is_some() && change.after.is_some()) {
            return wrong("it has no value in common with the other".to_owned());
        }
        Ok(Comparison { tolerance, changes })
    }

    /// Values that are worse, or missing.
    pub fn failures(&self) -> usize {
        let failed = |change: &&Change| matches!(change.verdict, Verdict::Worse | Verdict::Missing);
        self.changes.iter().filter(failed).count()
    }

    /// All changes as a table for the terminal.
    pub fn table(&self) -> String {
        let heading = ["metric", "series", "at", "before", "after", "change", ""].map(str::to_owned).to_vec();
        let rows = self.changes.iter().map(Change::cells);
        aligned(&std::iter::once(heading).chain(rows).collect::<Vec<_>>(), 2)
    }
}

impl Report {
    /// Both reports as one, with the series of both in every plot.
    pub fn beside(&self, after: &Report) -> Report {
        let mut both = after.clone();
        both.title = format!("{}, before and after", self.title);
        both.notes.insert(0, format!("Before: {} on {}, {}", self.run.command, self.run.date, self.run.model));
        both.metrics = Vec::new();
        for (when, report) in [("before", self), ("after", after)] {
            for metric in &report.metrics {
                let renamed = metric.series.iter().cloned().map(|mut series| {
                    series.name = format!("{}, {when}", series.name);
                    series
                });
                match both.metrics.iter_mut().find(|known| known.quantity.name == metric.quantity.name) {
                    Some(known) => known.series.extend(renamed),
                    None => both.metrics.push(Metric { series: renamed.collect(), ..metric.clone() }),
                }
            }
        }
        both
    }
}

/// Metric, series and place of a value; the place by its bits.
type Key<'a> = (&'a str, &'a str, u64);

fn values(report: &Report) -> impl Iterator<Item = (Key<'_>, &Metric, f64)> {
    report.metrics.iter().flat_map(|metric| {
        metric.series.iter().flat_map(move |series| {
            let key = move |place: f64| (&*metric.quantity.name, series.name.as_str(), place.to_bits());
            series.points.iter().map(move |&(place, value)| (key(place), metric, value))
        })
    })
}

fn change(
    (name, series, place): Key<'_>,
    metric: &Metric,
    values: (Option<f64>, Option<f64>),
    tolerance: f64,
) -> Change {
    let verdict = match values {
        (Some(before), Some(after)) => verdict(metric.quantity.better, before, after, tolerance),
        (Some(_), None) => Verdict::Missing,
        (None, _) => Verdict::New,
    };
    Change {
        metric: name.to_owned(),
        unit: metric.quantity.unit.clone(),
        series: series.to_owned(),
        at: f64::from_bits(place),
        before: values.0,
        after: values.1,
        verdict,
    }
}

fn verdict(better: Better, before: f64, after: f64, tolerance: f64) -> Verdict {
    let worsening = match better {
        Better::Lower => after - before,
        Better::Higher => before - after,
    };
    let allowed = tolerance * before.abs();
    match worsening {
        _ if worsening > allowed => Verdict::Worse,
        _ if -worsening > allowed => Verdict::Better,
        _ => Verdict::Same,
    }
}

impl Change {
    fn cells(&self) -> Vec<String> {
        let number = |value: Option<f64>| value.map_or_else(|| NOTHING.to_owned(), short);
        let change = match (self.before, self.after) {
            (Some(before), Some(after)) if before == after => "0 %".to_owned(),
            (Some(before), Some(after)) if before != 0.0 => {
                format!("{:+.2} %", 100.0 * (after - before) / before.abs())
            }
            _ => NOTHING.to_owned(),
        };
        let verdict = match self.verdict {
            Verdict::Same => "",
            Verdict::Better => "better",
            Verdict::Worse => "WORSE",
            Verdict::Missing => "MISSING",
            Verdict::New => "new",
        };
        let name = if self.unit.is_empty() { self.metric.clone() } else { format!("{}, {}", self.metric, self.unit) };
        let at = short(self.at);
        vec![name, self.series.clone(), at, number(self.before), number(self.after), change, verdict.to_owned()]
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    fn compare(after: &Report, tolerance: f64) -> Result<Comparison, EvalError> {
        Comparison::of(&report(), (Path::new("b.json"), after), tolerance)
    }

    /// Changes one value of the report and returns what is said about it.
    fn check(metric: usize, point: usize, value: f64, tolerance: f64) -> Verdict {
        let mut after = report();
        after.metrics[metric].series[0].points[point].1 = value;
        let comparison = compare(&after, tolerance).unwrap();
        let others = comparison.changes.iter().filter(|change| change.verdict != Verdict::Same).count();
        assert!(others <= 1);
        let changed = comparison.changes.iter().find(|change| change.verdict != Verdict::Same);
        assert_eq!(comparison.failures(), usize::from(changed.is_some_and(|change| change.verdict == Verdict::Worse)));
        changed.map_or(Verdict::Same, |change| change.verdict)
    }

    #[test]
    fn a_report_is_the_same_as_itself() {
        let comparison = compare(&report(), 0.0).unwrap();
        assert_eq!((comparison.changes.len(), comparison.failures()), (7, 0));
        assert!(comparison.changes.iter().all(|change| change.verdict == Verdict::Same));
    }

    #[test]
    fn the_direction_of_the_metric_decides() {
        // 0.03 nats, lower is better.
        assert_eq!(check(0, 2, 0.0302, 0.01), Verdict::Same);
        assert_eq!(check(0, 2, 0.0304, 0.01), Verdict::Worse);
        assert_eq!(check(0, 2, 0.02, 0.01), Verdict::Better);
        // 97 %, higher is better.
        assert_eq!(check(1, 2, 96.5, 0.01), Verdict::Same);
        assert_eq!(check(1, 2, 90.0, 0.01), Verdict::Worse);
        assert_eq!(check(1, 2, 99.0, 0.01), Verdict::Better);
        // From exactly nothing, anything is worse.
        assert_eq!(check(0, 0, 1e-9, 0.5), Verdict::Worse);
    }

    #[test]
    fn values_can_be_missing_and_new() {
        let mut after = report();
        after.metrics[0].series.remove(1);
        after.metrics[1].add("int2", 256, 50.0);
        let comparison = compare(&after, 0.01).unwrap();
        let verdicts: Vec<Verdict> = comparison.changes.iter().map(|change| change.verdict).collect();
        assert_eq!(verdicts.iter().filter(|verdict| **verdict == Verdict::Missing).count(), 1);
        assert_eq!(verdicts.last(), Some(&Verdict::New));
        assert_eq!(comparison.failures(), 1);
        let table = comparison.table();
        assert!(table.contains("MISSING") && table.contains("new") && table.contains("0 %"), "{table}");
    }

    #[test]
    fn other_measurements_are_refused() {
        let (mut other, mut empty) = (report(), report());
        other.measurement = "latency".into();
        empty.metrics.clear();
        for (after, part) in [(other, "latency"), (empty, "in common")] {
            let problem = compare(&after, 0.01).unwrap_err().to_string();
            assert!(problem.contains("b.json") && problem.contains(part), "{problem}");
        }
    }

    #[test]
    fn both_reports_are_in_one_plot() {
        let both = report().beside(&report());
        assert_eq!(both.metrics.len(), 2);
        let names: Vec<&str> = both.metrics[0].series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["int4, before", "int8, before", "int4, after", "int8, after"]);
    }
}
