//! The admission queue: how many jobs may wait, bounded by number and by time, in equal shares for the tenants.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Tenant;

/// One long job does not close the queue.
const LONGEST_PACE_SECONDS: f64 = 60.0;

/// Jobs that were accepted and have not started.
#[derive(Debug)]
pub(super) struct Queue {
    limits: QueueLimits,
    waiting: BTreeMap<Tenant, usize>,
    count: usize,
    /// Jobs that have started and not ended.
    running: usize,
    /// Seconds between two starts when the service has all it can do; zero until a job has ended.
    pace_seconds: f64,
}

/// How long a queue may become.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueLimits {
    /// Jobs.
    pub(super) jobs: usize,
    /// About how long the last of them may wait; so many jobs as run at a time may wait however long it takes.
    pub(super) seconds: f64,
    /// Jobs that run at a time.
    pub(super) parallel: u32,
}

/// There is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full {
    pub(super) waiting: usize,
    pub(super) retry_after: Duration,
}

impl Queue {
    pub(super) fn new(limits: QueueLimits) -> Queue {
        Queue { limits, waiting: BTreeMap::new(), count: 0, running: 0, pace_seconds: 0.0 }
    }

    pub(super) fn parallel(&self) -> u32 {
        self.limits.parallel
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Whether a job that comes now need not wait for another.
    pub(super) fn starts_at_once(&self) -> bool {
        self.count + self.running < self.limits.parallel as usize
    }

    /// A job of this tenant waits from now on. Every tenant that waits has an equal share of the queue, because its jobs
    /// start as often as those of the others: one that has filled the queue does not keep others out.
    pub(super) fn enter(&mut self, tenant: Tenant) -> Result<(), Full> {
        if self.has_room(tenant) {
            *self.waiting.entry(tenant).or_default() += 1;
            self.count += 1;
            return Ok(());
        }
        // By then about half of it will have started.
        let seconds = (self.count as f64 * self.pace_seconds / 2.0).ceil().clamp(1.0, 60.0);
        Err(Full { waiting: self.count, retry_after: Duration::from_secs(seconds as u64) })
    }

    /// Whether a job of this tenant may wait.
    pub(super) fn has_room(&self, tenant: Tenant) -> bool {
        let own = self.waiting.get(&tenant).copied().unwrap_or(0);
        let (most, tenants) = (self.most(), self.waiting.len() + usize::from(own == 0));
        own < most.div_ceil(tenants) && self.count < 2 * most
    }

    /// One of its jobs runs from now on.
    pub(super) fn start(&mut self, tenant: Tenant) {
        self.leave(tenant);
        self.running += 1;
    }

    /// One waits no longer.
    pub(super) fn leave(&mut self, tenant: Tenant) {
        let Some(own) = self.waiting.get_mut(&tenant) else { return };
        *own -= 1;
        self.count -= 1;
        if *own == 0 {
            self.waiting.remove(&tenant);
        }
    }

    /// A job has ended that ran for so long.
    pub(super) fn ran(&mut self, seconds: f64) {
        self.running -= 1;
        let pace = (seconds / f64::from(self.limits.parallel)).min(LONGEST_PACE_SECONDS);
        // Slowly, because a few long jobs in a row say little of those that come.
        self.pace_seconds = 0.9 * self.pace_seconds + 0.1 * pace;
    }

    /// How many may wait; those that can start at once do not count.
    fn most(&self) -> usize {
        let QueueLimits { jobs, seconds, parallel } = self.limits;
        let parallel = parallel as usize;
        // A float that is too large becomes the largest number.
        let near = (seconds / self.pace_seconds.max(1e-6)) as usize;
        near.max(parallel).min(jobs) + parallel.saturating_sub(self.running)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(queue: &mut Queue, tenant: u64) -> usize {
        (0..).take_while(|_| queue.enter(Tenant(tenant)).is_ok()).count()
    }

    /// A queue in front of four jobs that run, after many others that took so long.
    fn queue_of(seconds: f64) -> Queue {
        let mut queue = Queue::new(QueueLimits { jobs: 30, seconds: 8.0, parallel: 4 });
        for number in 0..64 {
            assert_eq!(queue.enter(Tenant(1)), Ok(()));
            queue.start(Tenant(1));
            if number < 60 {
                queue.ran(seconds);
            }
        }
        queue
    }

    #[test]
    fn a_queue_is_as_long_as_it_moves_fast() {
        let mut unknown = Queue::new(QueueLimits { jobs: 30, seconds: 8.0, parallel: 4 });
        assert_eq!(fill(&mut unknown, 1), 34, "four of them start at once");
        assert_eq!(fill(&mut queue_of(0.1), 1), 30);
        assert_eq!(fill(&mut queue_of(4.0), 1), 8, "one starts every second");
        let mut slow = queue_of(100.0);
        assert_eq!(fill(&mut slow, 1), 4, "those that start next");
        assert_eq!(slow.enter(Tenant(1)), Err(Full { waiting: 4, retry_after: Duration::from_secs(50) }));
        slow.leave(Tenant(1));
        assert_eq!(slow.enter(Tenant(1)), Ok(()));
    }

    #[test]
    fn one_that_fills_the_queue_does_not_keep_others_out() {
        let mut queue = Queue::new(QueueLimits { jobs: 5, seconds: 60.0, parallel: 1 });
        assert_eq!(fill(&mut queue, 1), 6);
        let others: Vec<usize> = (2..6).map(|tenant| fill(&mut queue, tenant)).collect();
        assert_eq!(others, [3, 2, 1, 0], "a half, a third, and what is left of twice as many in all");
        (0..4).for_each(|_| queue.leave(Tenant(1)));
        assert_eq!(fill(&mut queue, 1), 0, "it has its share");
        (0..2).for_each(|_| queue.leave(Tenant(1)));
        assert_eq!((queue.count(), queue.waiting.len(), fill(&mut queue, 1)), (6, 3, 2));
    }
}
