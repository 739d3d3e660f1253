//! Signs of life of workers that wait at a dock.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::dock::Dock;

impl Dock {
    /// Lets go of workers that wait and give no sign of life, or no longer belong to the fleet. The others stay there
    /// while one is asked, and whoever needs that one waits for its answer.
    pub fn sweep(&self, patience: Duration) {
        for _ in 0..self.count() {
            let mut waiting = self.waiting();
            let Some(mut docked) = waiting.pop_front() else { return };
            // Before anyone else sees that it is not in the list.
            self.asked.fetch_add(1, Ordering::AcqRel);
            drop(waiting);
            if self.admits(&docked.node) {
                if docked.ping(patience, self).is_ok() {
                    self.put(docked);
                } else {
                    self.remember_loss(&docked.node);
                }
            }
            self.asked.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
