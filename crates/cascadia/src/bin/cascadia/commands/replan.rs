//! A stage for which nobody is left: the model is planned again over the machines that remain and those that have come.

use std::time::{Duration, Instant};

use cascadia_fleet::HERE;

use super::serve::open_options;
use super::serve_live::{LiveReplacement, Old};
use super::serve_model::{ModelChoice, SENDING};
use crate::flags::ServeFlags;
use crate::handover::PushWish;
use crate::output::remark;

/// How long a stage is without a machine before that, unless the flags say otherwise: one that is started anew is back.
const REPLAN_SECONDS: u64 = 15;
/// The longest time between two attempts; each is made after twice the time before it.
const LONGEST: Duration = Duration::from_secs(600);
/// How long machines may take to come and be measured.
const COMING: Duration = Duration::from_secs(3);

/// Knows when a stage has been without a machine for too long.
pub(super) struct Impatience {
    /// Before the first attempt; nothing if none is made.
    first: Option<Duration>,
    /// Since when there is nobody, or since the last attempt, and how long to wait from then on.
    since: Option<(Instant, Duration)>,
}

impl Impatience {
    /// What was asked for.
    pub(super) fn of(flags: &ServeFlags) -> Impatience {
        let seconds = Some(flags.replan_seconds.unwrap_or(REPLAN_SECONDS)).filter(|seconds| *seconds > 0);
        Impatience { first: seconds.map(Duration::from_secs), since: None }
    }

    /// Whether it is time to plan again because of these stages.
    pub(super) fn is_over(&mut self, missing: &[usize], now: Instant) -> bool {
        let Some(first) = self.first else { return false };
        if missing.is_empty() {
            self.since = None;
            return false;
        }
        let (since, pause) = *self.since.get_or_insert((now, first));
        let is_over = now.saturating_duration_since(since) >= pause;
        if is_over {
            self.since = Some((now, (2 * pause).min(LONGEST)));
        }
        is_over
    }
}

impl LiveReplacement {
    /// Plans again, and says how that ended.
    pub(super) fn plan_again(&self, missing: &[usize]) {
        let stages: Vec<String> = missing.iter().map(|stage| format!("stage {stage}")).collect();
        remark(&format!("No machine is left for {}; planning again.", stages.join(", ")));
        match self.try_plan_again() {
            Ok(Some(old)) => self.end(old),
            Ok(None) => {}
            Err(error) => remark(&format!("It could not be planned again, and will be tried later: {error:#}")),
        }
    }

    fn try_plan_again(&self) -> anyhow::Result<Option<Old>> {
        let Some(choice) = ModelChoice::of(&self.flags) else { return Ok(None) };
        // Threads of its own: those of the server may be computing.
        let prepared = choice.prepare(&self.fleet, &open_options(&self.flags)?.pool, COMING)?;
        if self.fleet.missing().is_empty() {
            remark("A machine came back meanwhile; nothing changes.");
            return Ok(None);
        }
        let served = self.fleet.model() == Some(prepared.model);
        let has_own = || prepared.cast.own.iter().all(|stage| self.fleet.has(HERE, *stage as usize));
        if !(served && has_own()) {
            // Nobody can be served by it, and machines may not have room for both.
            self.fleet.let_go();
        }
        let wish = PushWish::new(prepared.cast.folder, prepared.targets, SENDING.as_secs());
        self.push(&wish, prepared.cast.plan, &remark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_made_less_and_less_often_until_nothing_is_missing() {
        let of = |seconds| Impatience::of(&ServeFlags { replan_seconds: Some(seconds), ..ServeFlags::default() });
        let begin = Instant::now();
        let attempts = |impatience: &mut Impatience, from: u64, to: u64| -> Vec<u64> {
            let mut over = |second: u64| impatience.is_over(&[1], begin + Duration::from_secs(second));
            (from..to).filter(|second| over(*second)).collect()
        };
        let mut impatience = of(10);
        assert_eq!(attempts(&mut impatience, 0, 1000), [10, 30, 70, 150, 310, 630]);
        assert!(!impatience.is_over(&[], begin + Duration::from_secs(1000)));
        assert_eq!(attempts(&mut impatience, 1001, 1020), [1011]);
        assert_eq!(attempts(&mut of(0), 0, 1000), [0; 0]);
    }
}
