//! Which rows of a weight matrix a task multiplies.

use std::ops::{Range, RangeInclusive};

/// Streams of memory that a thread reads side by side: one alone leaves a core waiting.
pub(crate) const STREAMS: usize = 4;

/// Rows of each stream that one task multiplies: enough to hide the cost of claiming it, few enough to balance threads.
const ROWS_PER_TASK: RangeInclusive<usize> = 2..=16;
/// Tasks of a span that are enough: a thread on a slow core then delays the others by a small part of their own work.
const TASKS_PER_SPAN: usize = 16;

/// Rows of a matrix in four runs of equal length that lie equally far apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FourRuns {
    /// The first row of the first run.
    first: usize,
    /// Rows in each run.
    length: usize,
    /// Rows from the start of one run to the start of the next.
    apart: usize,
    /// The last run may be shorter, or missing: rows from here on belong to nobody.
    end: usize,
}

impl FourRuns {
    /// Neighbouring rows, whose quarters are the four runs.
    pub fn neighbours(rows: Range<usize>) -> FourRuns {
        let apart = rows.len().div_ceil(STREAMS);
        FourRuns { first: rows.start, length: apart, apart, end: rows.end }
    }

    /// The rows `part` of each quarter of `span`.
    fn of_quarters(span: Range<usize>, part: Range<usize>) -> FourRuns {
        let apart = span.len().div_ceil(STREAMS);
        let length = part.end.min(apart).saturating_sub(part.start);
        FourRuns { first: span.start + part.start, length, apart, end: span.end }
    }

    /// Rows in each run: how many fours there are.
    #[inline]
    pub fn fours(&self) -> usize {
        self.length
    }

    /// Row `at` of each run; where a run has no such row, the last one there is.
    #[inline]
    pub fn four(&self, at: usize) -> [usize; STREAMS] {
        let row = |run: usize| (self.first + at + run * self.apart).min(self.end - 1);
        [row(0), row(1), row(2), row(3)]
    }

    /// Row `at` of one run, if it has one.
    #[inline]
    pub(crate) fn row(&self, at: usize, run: usize) -> Option<usize> {
        Some(self.first + at + run * self.apart).filter(|row| *row < self.end)
    }

    /// The places of the same rows where they are kept by themselves, without what lies between the runs.
    pub(crate) fn compact(&self) -> FourRuns {
        FourRuns::neighbours(0..self.as_range().map_or(STREAMS * self.length, |rows| rows.len()))
    }

    /// How many rows there are at most.
    pub(crate) fn most(&self) -> usize {
        STREAMS * self.length
    }

    /// The rows, if they are neighbours.
    pub fn as_range(&self) -> Option<Range<usize>> {
        (self.length == self.apart).then_some(self.first..self.end)
    }
}

/// How the rows of a matrix are divided into tasks: into spans, and the four quarters of each span into parts.
#[derive(Clone, Copy, Debug)]
pub struct Tiling {
    rows: usize,
    span: usize,
    part: usize,
}

impl Tiling {
    /// Tasks of `count` neighbouring rows each.
    pub fn neighbours(rows: usize, count: usize) -> Tiling {
        Tiling { rows, span: count, part: count.div_ceil(STREAMS) }
    }

    /// Every task takes a few rows from each quarter of one of `spans` spans. A thread that takes the tasks of a span in
    /// order reads four long streams of memory.
    pub fn streams(rows: usize, spans: usize) -> Tiling {
        let span = rows.div_ceil(spans).next_multiple_of(STREAMS);
        let part = span / STREAMS / TASKS_PER_SPAN;
        Tiling { rows, span, part: part.clamp(*ROWS_PER_TASK.start(), *ROWS_PER_TASK.end()) }
    }

    /// Rows of the matrix.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many tasks.
    pub(crate) fn tasks(&self) -> usize {
        self.rows.div_ceil(self.span) * self.parts()
    }

    /// The rows of a task; none, where a last short span has fewer parts.
    pub(crate) fn task(&self, task: usize) -> FourRuns {
        let (span, part) = (task / self.parts(), task % self.parts());
        let span = self.span * span..self.rows.min(self.span * (span + 1));
        FourRuns::of_quarters(span, self.part * part..self.part * (part + 1))
    }

    fn parts(&self) -> usize {
        self.span.div_ceil(STREAMS).div_ceil(self.part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The existing rows of some runs.
    fn rows(runs: FourRuns) -> Vec<usize> {
        (0..STREAMS).flat_map(|run| (0..runs.fours()).filter_map(move |at| runs.row(at, run))).collect()
    }

    #[test]
    fn every_row_belongs_to_one_task() {
        for count in (1..70).chain([100, 256, 2048, 2051]) {
            let streams = [1, 2, 3, 8].map(|spans| Tiling::streams(count, spans));
            let neighbours = [16, 32, 256].map(|rows| Tiling::neighbours(count, rows));
            for tiling in streams.into_iter().chain(neighbours) {
                let mut all: Vec<usize> = (0..tiling.tasks()).flat_map(|task| rows(tiling.task(task))).collect();
                all.sort_unstable();
                assert_eq!(all, (0..count).collect::<Vec<_>>(), "{tiling:?}");
            }
        }
    }

    /// Threads of different speeds take the tasks of their own spans, then those of others, as a pool's do.
    #[test]
    fn a_slow_thread_delays_the_others_little() {
        for (count, speeds) in [(2048, vec![2, 1]), (2048, [3, 3, 3, 1].repeat(4)), (512, [2, 1].repeat(4))] {
            let tiling = Tiling::streams(count, speeds.len());
            let tasks = tiling.tasks() / speeds.len();
            let mut next = vec![0; speeds.len()];
            let mut ends = vec![0.0_f64; speeds.len()];
            loop {
                let idle = (0..ends.len()).min_by(|a, b| ends[*a].total_cmp(&ends[*b])).expect("a thread");
                let mut spans = (0..next.len()).map(|span| (span + idle) % next.len());
                let Some(span) = spans.find(|span| next[*span] < tasks) else { break };
                ends[idle] += rows(tiling.task(span * tasks + next[span])).len() as f64 / f64::from(speeds[idle]);
                next[span] += 1;
            }
            let ideal = count as f64 / f64::from(speeds.iter().sum::<i32>());
            let last = ends.into_iter().fold(0.0, f64::max);
            assert!(last <= 1.15 * ideal, "{count} rows, {speeds:?}: {last} instead of {ideal}");
        }
    }

    #[test]
    fn neighbours_are_a_range() {
        let tiling = Tiling::neighbours(100, 32);
        let ranges: Vec<_> = (0..tiling.tasks()).map(|task| tiling.task(task).as_range()).collect();
        assert_eq!(ranges, [Some(0..32), Some(32..64), Some(64..96), Some(96..100)]);
        assert_eq!(Tiling::streams(2048, 2).task(1).as_range(), None);
        assert_eq!(Tiling::streams(2048, 2).task(1).four(3), [19, 275, 531, 787]);
        assert_eq!(FourRuns::neighbours(10..15).four(1), [11, 13, 14, 14]);
    }
}
