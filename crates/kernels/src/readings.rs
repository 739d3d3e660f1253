//! The fastest way to read each kind of matrix on this machine, measured on the weights themselves.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use crate::matrix::{Matrix, Shape};
use crate::reading::Reading;
use crate::{Activations, Dtype, Layout, Ops, Pool};

/// Times every way is tried; the best counts, because other programs only slow it down.
const ROUNDS: usize = 4;
/// A way has to be so much faster than the default to be chosen, so that noise chooses nothing.
const GAIN: f64 = 1.03;

/// What the speed of a matrix depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixKind {
    /// Storage format.
    pub dtype: Dtype,
    /// Order of the bytes.
    pub layout: Layout,
    /// Rows and columns.
    pub shape: Shape,
}

/// As people read it: format, rows, columns, order of the bytes.
impl fmt::Display for MatrixKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}x{} {}", self.dtype, self.shape.rows, self.shape.columns, self.layout)
    }
}

/// How fast one way was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimedReading {
    /// The way.
    pub reading: Reading,
    /// Bytes of weights per second.
    pub speed: f64,
}

/// The way of every kind that was measured; others are read by default.
#[derive(Clone, Debug, Default)]
pub struct Readings {
    chosen: HashMap<MatrixKind, TimedReading>,
    /// Used for every kind, if somebody decided so.
    fixed: Option<Reading>,
}

impl Readings {
    /// One way for every matrix.
    pub fn fixed(reading: Reading) -> Readings {
        Readings { chosen: HashMap::new(), fixed: Some(reading) }
    }

    /// How to read a matrix.
    pub fn of(&self, matrix: &Matrix) -> Reading {
        let chosen = || self.chosen.get(&matrix.kind()).map(|timed| timed.reading);
        self.fixed.or_else(chosen).unwrap_or(Reading::DEFAULT)
    }

    /// Whether there is nothing to measure for this kind.
    pub fn knows(&self, kind: MatrixKind) -> bool {
        self.fixed.is_some() || self.chosen.contains_key(&kind)
    }

    /// Remembers the way of a kind.
    pub fn choose(&mut self, kind: MatrixKind, timed: TimedReading) {
        self.chosen.insert(kind, timed);
    }

    /// What was chosen, in no particular order.
    pub fn chosen(&self) -> impl Iterator<Item = (MatrixKind, TimedReading)> {
        self.chosen.iter().map(|(kind, timed)| (*kind, *timed))
    }
}

/// Multiplies each of some matrices of one kind with one column, in every way, and returns the fastest. They should be
/// larger together than the caches are.
pub fn time_readings(matrices: &[Matrix], ops: &Ops, pool: &Pool) -> TimedReading {
    let shape = matrices[0].shape();
    let mut x = Activations::with_capacity(1, shape.columns);
    x.reset(1, shape.columns).fill(1.0);
    let mut out = vec![0.0; shape.rows];
    let mut pass = |reading: Reading| {
        let begin = Instant::now();
        matrices.iter().for_each(|matrix| matrix.multiply(&mut x, &mut out, (ops, pool, reading)));
        begin.elapsed()
    };
    // Brings the weights into memory.
    pass(Reading::DEFAULT);
    let mut best = [Duration::MAX; Reading::CANDIDATES.len()];
    for _ in 0..ROUNDS {
        for (best, reading) in best.iter_mut().zip(Reading::CANDIDATES) {
            *best = pass(reading).min(*best);
        }
    }
    let bytes: u64 = matrices.iter().map(Matrix::bytes).sum();
    let timed = |(reading, time): (Reading, Duration)| TimedReading {
        reading,
        speed: bytes as f64 / time.as_secs_f64().max(1e-9),
    };
    let mut timed = Reading::CANDIDATES.into_iter().zip(best).map(timed);
    let default = timed.next().expect("the default is a candidate");
    let faster = timed.filter(|other| other.speed > GAIN * default.speed);
    faster.max_by(|a, b| a.speed.total_cmp(&b.speed)).unwrap_or(default)
}
