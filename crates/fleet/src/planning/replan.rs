//! When to plan a model again: because a stage has been without a machine for too long, or because one has come.

use std::time::{Duration, Instant};

/// The longest time between two attempts; each is made after twice the time before it.
const LONGEST: Duration = Duration::from_secs(600);

/// Knows when it is time to plan again.
pub struct ReplanTimer {
    /// Before the first attempt; nothing if none is made.
    first: Option<Duration>,
    /// Since when there is a reason, or since the last attempt, and how long to wait from then on.
    since: Option<(Instant, Duration)>,
}

impl ReplanTimer {
    /// Waits for so long before the first attempt, because a machine that is started anew is soon back, and those that
    /// come first are not the last; without a time, none is made.
    pub fn new(first: Option<Duration>) -> ReplanTimer {
        ReplanTimer { first, since: None }
    }

    /// Whether it is time to plan again, where there is a reason to.
    pub fn is_due(&mut self, is_needed: bool, now: Instant) -> bool {
        let Some(first) = self.first else { return false };
        if !is_needed {
            self.since = None;
            return false;
        }
        let (since, pause) = *self.since.get_or_insert((now, first));
        let is_due = now.saturating_duration_since(since) >= pause;
        if is_due {
            self.since = Some((now, (2 * pause).min(LONGEST)));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Clock;

    #[test]
    fn attempts_are_made_less_and_less_often_until_nothing_is_missing() {
        let of = |seconds| ReplanTimer::new(Some(Duration::from_secs(seconds)));
        let begin = Clock::system().now();
        let attempts = |timer: &mut ReplanTimer, from: u64, to: u64| -> Vec<u64> {
            let mut due = |second: u64| timer.is_due(true, begin + Duration::from_secs(second));
            (from..to).filter(|second| due(*second)).collect()
        };
        let mut timer = of(10);
        assert_eq!(attempts(&mut timer, 0, 1000), [10, 30, 70, 150, 310, 630]);
        assert!(!timer.is_due(false, begin + Duration::from_secs(1000)));
        assert_eq!(attempts(&mut timer, 1001, 1020), [1011]);
        assert_eq!(attempts(&mut ReplanTimer::new(None), 0, 1000), [0; 0]);
    }
}
