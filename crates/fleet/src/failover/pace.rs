//! How long the steps of a machine usually take, and whether it has become slow.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use cascadia_model::StepPlan;

/// A step that takes so many times as long as usual is slow,
const TIMES: u32 = 4;
/// and one that takes more than so many times as long does not show that a machine is quick again,
const NOT_QUICK: u32 = 2;
/// unless it is over sooner than anybody minds.
const UNNOTICED: Duration = Duration::from_millis(10);
/// A machine with so many slow steps in a row is.
pub(crate) const IN_A_ROW: u32 = 8;
/// Steps after which it is known what is usual,
const ENOUGH: usize = 8;
/// and how many of the last ones say so.
const REMEMBERED: usize = 32;

/// Whether one machine took so much longer for a step than another that somebody minds.
pub(crate) fn is_far_slower(time: Duration, than: Duration) -> bool {
    time > UNNOTICED.max(than * TIMES)
}

/// What is usual for one machine, and how its last steps were beside that.
#[derive(Default)]
pub(crate) struct Pace {
    /// By [`Size`], of which there are a few hundred at most.
    usual: HashMap<Size, Times>,
    /// The step that is under way.
    begun: Option<(Size, Instant)>,
    /// How long the last one took.
    last: Duration,
    slow: u32,
}

/// Steps that should take about as long: the rows of one, and what those rows read, each rounded to a power of two.
type Size = (u32, u32);

fn size(plan: &StepPlan) -> Size {
    let read: u64 = plan.steps.iter().map(|step| u64::from(step.start) + step.rows.len() as u64).sum();
    ((plan.tokens.len() as u64).max(1).ilog2(), read.max(1).ilog2())
}

impl Pace {
    /// A step is sent.
    pub(crate) fn begin(&mut self, plan: &StepPlan, now: Instant) {
        self.begun = Some((size(plan), now));
    }

    /// Its rows are there.
    pub(crate) fn end(&mut self, now: Instant) {
        if let Some((size, begin)) = self.begun.take() {
            self.last = now.saturating_duration_since(begin);
            self.see(size, self.last);
        }
    }

    /// How long the last step took.
    pub(crate) fn last(&self) -> Duration {
        self.last
    }

    /// How long the step has taken that is under way, and what is usual for such a step, if that is known.
    pub(crate) fn under_way(&self, now: Instant) -> Option<(Duration, Option<Duration>)> {
        let (size, begin) = self.begun?;
        Some((now.saturating_duration_since(begin), self.usual.get(&size).and_then(Times::median)))
    }

    /// Whether the machine takes far longer than it used to.
    pub(crate) fn is_slow(&self) -> bool {
        self.slow >= IN_A_ROW
    }

    /// Slow steps do not become usual: a machine is slow until it is as quick as it was.
    fn see(&mut self, size: Size, time: Duration) {
        let times = self.usual.entry(size).or_default();
        match times.median() {
            Some(usual) if is_far_slower(time, usual) => self.slow = self.slow.saturating_add(1),
            usual => {
                times.add(time);
                if usual.is_some_and(|usual| time <= UNNOTICED.max(usual * NOT_QUICK)) {
                    self.slow = 0;
                }
            }
        }
    }
}

/// Times of steps of one size.
#[derive(Default)]
struct Times {
    last: [Duration; REMEMBERED],
    count: usize,
}

impl Times {
    fn add(&mut self, time: Duration) {
        self.last[self.count % REMEMBERED] = time;
        self.count += 1;
    }

    /// The middle one, once there are enough.
    fn median(&self) -> Option<Duration> {
        let mut times = self.last;
        let times = &mut times[..self.count.min(REMEMBERED)];
        let middle = times.len() / 2;
        (times.len() >= ENOUGH).then(|| *times.select_nth_unstable(middle).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: Size = (0, 7);
    const PROMPT: Size = (8, 8);

    /// How many steps of these sizes and milliseconds it takes for a machine to be slow.
    fn check(steps: &[(usize, Size, u64)], expected: Option<usize>) {
        let mut pace = Pace::default();
        let all = steps.iter().flat_map(|(count, size, time)| std::iter::repeat_n((*size, *time), *count));
        let slow = all.map(|(size, time)| {
            pace.see(size, Duration::from_millis(time));
            pace.is_slow()
        });
        assert_eq!(slow.collect::<Vec<_>>().iter().position(|slow| *slow).map(|at| at + 1), expected, "{steps:?}");
    }

    #[test]
    fn eight_steps_of_more_than_four_times_the_usual_are_slow() {
        check(&[(20, TOKEN, 10), (8, TOKEN, 41)], Some(28));
        check(&[(20, TOKEN, 10), (100, TOKEN, 40)], None);
        check(&[(20, TOKEN, 10), (7, TOKEN, 900), (1, TOKEN, 12), (7, TOKEN, 900)], None);
        // What is neither says nothing.
        check(&[(20, TOKEN, 10), (7, TOKEN, 41), (5, TOKEN, 39), (1, TOKEN, 41)], Some(33));
        check(&[(20, TOKEN, 10), (7, TOKEN, 41), (1, TOKEN, 20), (7, TOKEN, 41)], None);
        // Nobody minds that.
        check(&[(20, TOKEN, 1), (100, TOKEN, 10)], None);
        check(&[(20, TOKEN, 1), (8, TOKEN, 11)], Some(28));
    }

    #[test]
    fn a_step_is_compared_with_others_of_its_size() {
        check(&[(20, TOKEN, 10), (30, PROMPT, 900), (20, TOKEN, 12)], None);
        // A step of which nothing is known says nothing, in either direction.
        check(&[(20, TOKEN, 10), (4, TOKEN, 50), (3, PROMPT, 900), (4, TOKEN, 50)], Some(31));
        check(&[(20, TOKEN, 10), (4, TOKEN, 50), (20, PROMPT, 900), (4, TOKEN, 50)], None);
    }

    #[test]
    fn what_is_usual_may_change_slowly_and_not_at_once() {
        let climb: Vec<_> = (1..=10).map(|tens| (REMEMBERED, TOKEN, 30 * tens)).collect();
        check(&climb, None);
        let mut pace = Pace::default();
        for (times, milliseconds, slow) in [(1000, 10, false), (1000, 50, true), (1, 15, false), (8, 50, true)] {
            (0..times).for_each(|_| pace.see(TOKEN, Duration::from_millis(milliseconds)));
            assert_eq!(pace.is_slow(), slow, "after {times} steps of {milliseconds} ms");
        }
    }
}
