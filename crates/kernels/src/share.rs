//! How the tasks of a job are divided among threads.

use std::ops::Range;

/// A part for each thread. Tasks ask for theirs often, so nothing is divided then.
#[derive(Clone, Copy)]
pub(crate) struct Share {
    each: usize,
    /// So many of the first threads have one more.
    more: usize,
}

/// Which tile it is.
#[derive(Clone, Copy, Debug)]
pub struct TilePlace {
    /// The matrix.
    pub matrix: usize,
    /// The group of its rows.
    pub group: usize,
}

impl Share {
    /// So many tasks for so many threads.
    pub(crate) fn new(tasks: usize, threads: usize) -> Share {
        Share { each: tasks / threads, more: tasks % threads }
    }

    /// The tasks of one thread.
    pub(crate) fn of(self, thread: usize) -> Range<usize> {
        let start = |thread: usize| thread * self.each + thread.min(self.more);
        start(thread)..start(thread + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_has_one_thread() {
        for (tasks, threads) in [(0, 1), (1, 3), (7, 3), (9, 3), (2, 8), (100, 7)] {
            let share = Share::new(tasks, threads);
            let all: Vec<usize> = (0..threads).flat_map(|thread| share.of(thread)).collect();
            assert_eq!(all, (0..tasks).collect::<Vec<_>>(), "{tasks} tasks, {threads} threads");
        }
    }
}
