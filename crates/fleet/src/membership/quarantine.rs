//! Machines that are lost again and again: they are held back until they have had time to settle.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Losses after which a machine is held back.
const TOO_MANY: usize = 3;
/// For how long a loss counts.
const LATELY: Duration = Duration::from_secs(60);
/// The longest that a machine is held back: the time doubles until then, and begins anew after as long without.
const LONGEST: Duration = Duration::from_secs(3600);
/// Machines of which something is remembered.
const MOST_MACHINES: usize = 256;

/// Who was lost lately, and who is held back for it. Without a time for that, nobody is.
#[derive(Default)]
pub struct Quarantine {
    first: Duration,
    machines: Mutex<HashMap<String, LossHistory>>,
}

/// What is remembered of a machine.
#[derive(Default)]
struct LossHistory {
    losses: Vec<Instant>,
    /// How often it was held back, and until when.
    times: u32,
    until: Option<Instant>,
}

impl LossHistory {
    fn lately(&self, now: Instant) -> usize {
        self.losses.iter().filter(|loss| now.duration_since(**loss) < LATELY).count()
    }

    fn left(&self, now: Instant) -> Option<Duration> {
        self.until.map(|until| until.saturating_duration_since(now)).filter(|left| !left.is_zero())
    }

    fn matters(&self, now: Instant) -> bool {
        self.lately(now) > 0 || self.until.is_some_and(|until| now < until + LONGEST)
    }
}

impl Quarantine {
    /// Holds machines back for so long the first time.
    pub fn lasting(first: Duration) -> Quarantine {
        Quarantine { first, ..Quarantine::default() }
    }

    /// Remembers that a machine was lost; for how long it is held back, if that was once too often.
    pub(crate) fn lost(&self, node: &str, now: Instant) -> Option<Duration> {
        let mut machines = self.machines();
        machines.retain(|_, conduct| conduct.matters(now));
        if machines.len() >= MOST_MACHINES && !machines.contains_key(node) {
            return None;
        }
        let conduct = machines.entry(node.to_owned()).or_default();
        if conduct.losses.len() == TOO_MANY {
            conduct.losses.remove(0);
        }
        conduct.losses.push(now);
        if self.first.is_zero() || conduct.lately(now) < TOO_MANY {
            return None;
        }
        conduct.losses.clear();
        let time = self.first.saturating_mul(2_u32.saturating_pow(conduct.times)).min(LONGEST);
        (conduct.times, conduct.until) = (conduct.times.saturating_add(1), Some(now + time));
        Some(time)
    }

    /// How often a machine was lost lately; nothing while it is held back.
    pub(crate) fn losses(&self, node: &str, now: Instant) -> Option<usize> {
        match self.machines().get(node) {
            Some(conduct) if conduct.left(now).is_some() => None,
            conduct => Some(conduct.map_or(0, |conduct| conduct.lately(now))),
        }
    }

    /// Who is held back, and for how much longer.
    pub fn held_back(&self, now: Instant) -> BTreeMap<String, Duration> {
        let machines = self.machines();
        machines.iter().filter_map(|(node, conduct)| Some((node.clone(), conduct.left(now)?))).collect()
    }

    fn machines(&self) -> MutexGuard<'_, HashMap<String, LossHistory>> {
        // Nothing in there can be left half done.
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Clock;

    const MINUTE: u64 = 60;

    #[test]
    fn three_losses_in_a_minute_hold_a_machine_back_for_longer_every_time() {
        let (begin, quarantine) = (Clock::system().now(), Quarantine::lasting(Duration::from_secs(5 * MINUTE)));
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let lost = |seconds: u64| quarantine.lost("flapper", at(seconds)).map(|time| time.as_secs() / MINUTE);
        // What is a minute ago counts no more.
        assert_eq!([0, 30, 60, 90].map(lost), [None; 4]);
        assert_eq!(quarantine.losses("flapper", at(90)), Some(2));
        assert_eq!(lost(91), Some(5));
        let held = |seconds: u64| quarantine.held_back(at(seconds)).get("flapper").map(Duration::as_secs);
        assert_eq!((held(91), held(390), held(391)), (Some(300), Some(1), None));
        assert_eq!((quarantine.losses("flapper", at(390)), quarantine.losses("flapper", at(391))), (None, Some(0)));
        assert_eq!(quarantine.losses("steady", at(91)), Some(0));
        let mut now = 400;
        for minutes in [10, 20, 40, 60, 60] {
            assert_eq!([now, now + 1, now + 2].map(lost), [None, None, Some(minutes)]);
            now += MINUTE * minutes + 10;
        }
        // After an hour without, it begins anew.
        now += 60 * MINUTE;
        assert_eq!([now, now + 1, now + 2].map(lost), [None, None, Some(5)]);
    }

    #[test]
    fn without_a_time_nobody_is_held_back_and_what_is_remembered_is_bounded() {
        let (begin, quarantine) = (Clock::system().now(), Quarantine::default());
        for number in 0..2 * MOST_MACHINES {
            for _ in 0..2 * TOO_MANY {
                assert_eq!(quarantine.lost(&number.to_string(), begin), None);
            }
        }
        assert_eq!(quarantine.losses("0", begin), Some(TOO_MANY));
        assert_eq!(quarantine.machines().len(), MOST_MACHINES);
        assert!(quarantine.held_back(begin).is_empty());
    }
}
