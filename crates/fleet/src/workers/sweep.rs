//! Signs of life of workers that wait at a dock.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::workers::stage_workers::StageWorkers;

impl StageWorkers {
    /// Lets go of workers that wait and give no sign of life, or no longer belong to the fleet. The others stay there
    /// while one is asked, and whoever needs that one waits for its answer.
    pub fn sweep(&self, patience: Duration) {
        for _ in 0..self.count() {
            let mut waiting = self.waiting();
            let Some(mut worker_link) = waiting.pop_front() else { return };
            // Before anyone else sees that it is not in the list.
            self.asked.fetch_add(1, Ordering::AcqRel);
            drop(waiting);
            if self.admits(&worker_link.node) {
                if worker_link.ping(patience, self).is_ok() {
                    self.put(worker_link);
                } else {
                    self.remember_loss(&worker_link.node);
                }
            }
            self.asked.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
