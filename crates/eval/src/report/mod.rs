//! A measurement as data, from which JSON, tables, pages and comparisons are made.

mod compare;
mod html;
mod number;
mod ruler;
mod svg;
mod table;

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use cascadia_kernels::Ops;
use serde::{Deserialize, Serialize};

use crate::{EvalError, os};

pub use compare::{Change, Comparison, Verdict};

/// The longest report that is read, in bytes.
const MOST_BYTES: u64 = 16 << 20;
/// Numbers are bounded by this, so that differences between them are numbers too.
const LARGEST: f64 = 1e300;

/// What a measurement found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Which measurement it is; only reports of the same one can be compared.
    pub measurement: String,
    /// What people call it.
    pub title: String,
    /// What was run, where and when.
    #[serde(flatten)]
    pub run: Run,
    /// How the numbers came about, one sentence each.
    pub notes: Vec<String>,
    /// The numbers.
    pub metrics: Vec<Metric>,
}

/// What was run, where and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The program and its version.
    pub program: String,
    /// The whole command.
    pub command: String,
    /// The day, in UTC.
    pub date: String,
    /// The model.
    pub model: String,
    /// The machine.
    pub machine: Machine,
}

/// The machine of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Operating system and architecture.
    pub system: String,
    /// The CPU, where the system says what it is.
    pub cpu: Option<String>,
    /// The instruction set of the kernels.
    pub instructions: String,
    /// Compute threads.
    pub threads: usize,
}

/// One quantity along an axis, once for each thing that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// What was measured.
    #[serde(flatten)]
    pub quantity: Quantity,
    /// What it was measured along.
    pub axis: Axis,
    /// The values.
    pub series: Vec<Series>,
}

/// Something that can be measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quantity {
    /// Its name, which no other metric of the report has.
    pub name: String,
    /// The unit of its values; empty where they have none.
    pub unit: String,
    /// Which values are better.
    pub better: Better,
}

/// Which of two values is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// The smaller one.
    Lower,
    /// The larger one.
    Higher,
}

/// What a quantity is measured along.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// How plots divide it.
    pub scale: Scale,
}

/// How a plot divides an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Equal differences are equally long.
    Linear,
    /// Equal factors are equally long.
    Logarithmic,
}

/// The values of one thing that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Which thing; no other series of the metric has this name.
    pub name: String,
    /// Places on the axis, each with its value.
    pub points: Vec<(f64, f64)>,
}

impl Report {
    /// Reads a report that was written as JSON.
    pub fn read(path: &Path) -> Result<Report, EvalError> {
        let wrong = |problem: String| EvalError::Report { path: path.to_path_buf(), problem };
        let bytes = fs::metadata(path).map_err(|error| wrong(error.to_string()))?.len();
        if bytes > MOST_BYTES {
            return Err(wrong(format!("it has {bytes} bytes, and a report has {MOST_BYTES} at most")));
        }
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))
    }
}

impl Run {
    /// A run that begins at `time` on this machine.
    pub fn new(time: SystemTime, command: String, model: String, threads: usize) -> Run {
        let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs() as i64);
        let date = chrono::DateTime::from_timestamp(seconds, 0).unwrap_or_default().format("%Y-%m-%d").to_string();
        let program = concat!("cascadia ", env!("CARGO_PKG_VERSION")).to_owned();
        Run { program, command, date, model, machine: Machine::this(threads) }
    }
}

impl Machine {
    /// This machine with so many compute threads.
    fn this(threads: usize) -> Machine {
        Machine {
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            cpu: os::cpu_name(),
            instructions: Ops::best().name().to_owned(),
            threads,
        }
    }
}

impl Quantity {
    /// A quantity whose smaller values are better.
    pub fn lower(name: &str, unit: &str) -> Quantity {
        Quantity { name: name.to_owned(), unit: unit.to_owned(), better: Better::Lower }
    }

    /// A quantity whose larger values are better.
    pub fn higher(name: &str, unit: &str) -> Quantity {
        Quantity { better: Better::Higher, ..Quantity::lower(name, unit) }
    }

    /// A metric of this quantity without values.
    pub fn along(self, axis: Axis) -> Metric {
        Metric { quantity: self, axis, series: Vec::new() }
    }

    /// Unit and direction for people.
    fn describe(&self) -> String {
        let better = match self.better {
            Better::Lower => "lower is better",
            Better::Higher => "higher is better",
        };
        if self.unit.is_empty() { better.to_owned() } else { format!("{}, {better}", self.unit) }
    }
}

impl Axis {
    /// An axis of numbers of tokens.
    pub fn tokens(name: &str, scale: Scale) -> Axis {
        Axis { name: name.to_owned(), unit: "tokens".to_owned(), scale }
    }

    /// Name and unit for people.
    fn describe(&self) -> String {
        if self.unit.is_empty() { self.name.clone() } else { format!("{}, {}", self.name, self.unit) }
    }
}

impl Metric {
    /// Adds a value to a series, which begins with its first value. What is measured twice counts the second time.
    pub fn add(&mut self, series: &str, at: usize, value: f64) {
        assert!(!value.is_nan(), "{}: a value that is no number", self.quantity.name);
        let point = (at as f64, value.clamp(-LARGEST, LARGEST));
        match self.series.iter_mut().find(|known| known.name == series) {
            Some(known) => match known.points.iter_mut().find(|known| known.0 == point.0) {
                Some(known) => *known = point,
                None => known.points.push(point),
            },
            None => self.series.push(Series { name: series.to_owned(), points: vec![point] }),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A report with one metric of each direction.
    pub(crate) fn report() -> Report {
        let axis = Axis::tokens("context", Scale::Logarithmic);
        let mut divergence = Quantity::lower("KL divergence", "nats").along(axis.clone());
        let mut same = Quantity::higher("top-1 agreement", "%").along(axis);
        for (at, value) in [(256, 0.0), (512, 0.01), (1024, 0.03)] {
            divergence.add("int4", at, value);
            same.add("int4", at, 100.0 - 100.0 * value);
        }
        divergence.add("int8", 512, 0.001);
        let machine = Machine { system: "linux x86_64".into(), cpu: None, instructions: "scalar".into(), threads: 2 };
        Report {
            measurement: "drift".into(),
            title: "KV cache <drift> & more".into(),
            run: Run {
                program: "cascadia 0.1.0".into(),
                command: "cascadia eval drift \"a b\"".into(),
                date: "2026-11-18".into(),
                model: "model.gguf".into(),
                machine,
            },
            notes: vec!["Beside a cache in f32.".into()],
            metrics: vec![divergence, same],
        }
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        fs::write(&path, serde_json::to_string_pretty(&report()).unwrap()).unwrap();
        assert_eq!(Report::read(&path).unwrap(), report());
        let value: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(value["model"], "model.gguf");
        assert_eq!(value["metrics"][0]["better"], "lower");
        assert_eq!(value["metrics"][0]["series"][0]["points"][1], serde_json::json!([512.0, 0.01]));
        for text in ["", "{}", "[1]", "{\"metrics\": 3}"] {
            fs::write(&path, text).unwrap();
            assert!(Report::read(&path).unwrap_err().to_string().contains("report.json"), "{text}");
        }
        assert!(Report::read(&folder.path().join("absent.json")).is_err());
    }

    #[test]
    fn values_are_finite_and_one_for_each_place() {
        let mut metric = Quantity::lower("perplexity", "").along(Axis::tokens("context", Scale::Linear));
        metric.add("a", 1, f64::INFINITY);
        assert_eq!(metric.series[0].points, [(1.0, 1e300)]);
        metric.add("a", 2, 3.0);
        metric.add("a", 1, 4.0);
        assert_eq!(metric.series[0].points, [(1.0, 4.0), (2.0, 3.0)]);
    }

    #[test]
    fn a_run_has_its_day() {
        let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_763_424_000);
        let run = Run::new(time, "cascadia".into(), "model".into(), 3);
        assert_eq!((run.date.as_str(), run.machine.threads), ("2025-11-18", 3));
    }
}
