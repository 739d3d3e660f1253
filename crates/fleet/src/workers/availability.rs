//! What the owner of a machine lends to the fleet, and when.

use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cascadia_weights::{MEMORY_REFUSE, MEMORY_SHED};
use serde::{Deserialize, Serialize};

/// A machine comes back after nothing has spoken against it for so long.
const QUIET: Duration = Duration::from_secs(30);
/// So many readings in a row must find the owner busy: a moment's work sends nobody away.
const BUSY_READINGS: u32 = 3;

/// The limits that an owner sets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OwnerLimits {
    /// Threads that compute.
    pub threads: Option<u32>,
    /// The most of the machine's processors that threads may take, in percent.
    pub cpu_percent: Option<u32>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Bytes of shards on the disk.
    pub disk: Option<u64>,
    /// When the machine takes part, by its own clock.
    pub hours: Option<Hours>,
    /// The share of the processors, in percent, above which other programs send it away.
    pub busy_percent: Option<u32>,
    /// The temperature above which it leaves.
    pub celsius: Option<u32>,
    /// Whether it takes part on battery as well.
    pub on_battery: bool,
}

impl OwnerLimits {
    /// A machine that is hotter than this leaves, unless its owner says otherwise.
    pub const HOT_CELSIUS: u32 = 95;

    /// How many threads the owner lends of a machine with so many processors; nothing if that is not limited.
    pub fn threads_of(&self, processors: u32) -> Result<Option<u32>, String> {
        let share = self.cpu_percent.map(|percent| u64::from(processors) * u64::from(percent) / 100);
        match share {
            Some(0) => Err(format!(
                "{}% of {processors} processors is less than one thread; lend at least {}%",
                self.cpu_percent.unwrap_or_default(),
                100u32.div_ceil(processors.max(1)),
            )),
            Some(share) => Ok(Some(self.threads.unwrap_or(u32::MAX).min(u32::try_from(share).unwrap_or(u32::MAX)))),
            None => Ok(self.threads),
        }
    }
}

/// Hours of the day, such as 18-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Hours {
    /// The first.
    from: u32,
    /// The one after the last.
    to: u32,
}

/// What the system says of the machine now; nothing where it offers no answer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// The share of the processors that programs of the owner take, from 0 to 1.
    pub busy: Option<f64>,
    /// Whether it runs on battery.
    pub on_battery: Option<bool>,
    /// How hot it is where it is hottest.
    pub celsius: Option<f64>,
    /// The hour of its clock.
    pub hour: Option<u32>,
}

impl Hours {
    /// Whether an hour of the day is one of them.
    pub fn contains(self, hour: u32) -> bool {
        match self.from < self.to {
            true => (self.from..self.to).contains(&hour),
            false => hour >= self.from || hour < self.to,
        }
    }
}

impl FromStr for Hours {
    type Err = String;

    fn from_str(text: &str) -> Result<Hours, String> {
        let hour = |text: &str| text.parse().ok().filter(|hour| *hour <= 24);
        let parsed = text.split_once('-').and_then(|(from, to)| hour(from).zip(hour(to)));
        let hours = parsed.map(|(from, to): (u32, u32)| Hours { from: from % 24, to });
        let hours = hours.filter(|hours| hours.from != hours.to % 24 || hours.to == 24);
        hours.ok_or_else(|| format!("`{text}` is no time of the day; give hours such as 18-8"))
    }
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.from, self.to)
    }
}

impl From<Hours> for String {
    fn from(hours: Hours) -> String {
        hours.to_string()
    }
}

impl TryFrom<String> for Hours {
    type Error = String;

    fn try_from(text: String) -> Result<Hours, String> {
        text.parse()
    }
}

/// Whether a machine takes part now.
#[derive(Debug, Default)]
pub struct Availability {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Why not.
    reason: Option<String>,
    /// When something last spoke against it.
    spoke: Option<Instant>,
    /// Readings in a row that found the owner busy.
    busy: u32,
    /// Whether what is not needed should be released.
    sheds_memory: bool,
    /// Why it has no memory left to take part with.
    full: Option<String>,
    /// When a machine that has none left last had too little to come back.
    was_full: Option<Instant>,
}

impl Availability {
    /// Why the machine should not take part; nothing if it should.
    pub fn reason(&self) -> Option<String> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.reason.clone().or_else(|| state.full.clone())
    }

    /// Whether memory is so short that what does not compute should be released.
    pub fn sheds_memory(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).sheds_memory
    }

    /// Takes in which share of the memory is used now, where that is known. The machine leaves before there is none, so
    /// that the system need not end anyone, and comes back after a while in which there was enough.
    pub fn update_memory(&self, used: Option<f64>, now: Instant) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.sheds_memory = used.is_some_and(|used| used >= MEMORY_SHED);
        if let Some(used) = used.filter(|used| *used >= MEMORY_REFUSE) {
            state.full = Some(format!("its memory is nearly used up: {:.0} %", 100.0 * used));
        }
        if state.full.is_some() && state.sheds_memory {
            state.was_full = Some(now);
        } else if state.was_full.is_none_or(|was| now.saturating_duration_since(was) >= QUIET) {
            state.full = None;
        }
    }

    /// Takes in what the system says now. The machine leaves at once, and comes back after a while of quiet.
    pub fn update(&self, limits: &OwnerLimits, reading: &Reading, now: Instant) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let busy = reading.busy.zip(limits.busy_percent).is_some_and(|(busy, most)| 100.0 * busy > f64::from(most));
        state.busy = if busy { state.busy + 1 } else { 0 };
        let against = against(limits, reading)
            .or_else(|| (state.busy >= BUSY_READINGS).then(|| "its owner's programs need the processors".to_owned()));
        if let Some(reason) = against {
            (state.reason, state.spoke) = (Some(reason), Some(now));
        } else if state.spoke.is_none_or(|spoke| now.saturating_duration_since(spoke) >= QUIET) {
            state.reason = None;
        }
    }
}

/// What speaks against taking part as soon as it is so.
fn against(limits: &OwnerLimits, reading: &Reading) -> Option<String> {
    if let (Some(hours), Some(hour)) = (limits.hours, reading.hour)
        && !hours.contains(hour)
    {
        return Some(format!("its owner lends it from {hours} o'clock"));
    }
    if reading.on_battery == Some(true) && !limits.on_battery {
        return Some("it runs on battery".to_owned());
    }
    let (celsius, most) = (reading.celsius?, limits.celsius.unwrap_or(OwnerLimits::HOT_CELSIUS));
    (celsius > f64::from(most)).then(|| format!("it is hot: {celsius:.0} °C"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Clock;

    #[test]
    fn a_share_of_processors_is_threads() {
        let check =
            |threads: Option<u32>, cpu_percent: Option<u32>, processors: u32, expected: Result<Option<u32>, ()>| {
                let limits = OwnerLimits { threads, cpu_percent, ..OwnerLimits::default() };
                assert_eq!(limits.threads_of(processors).map_err(drop), expected, "{limits:?} of {processors}");
            };
        check(None, None, 8, Ok(None));
        check(Some(3), None, 8, Ok(Some(3)));
        check(None, Some(50), 8, Ok(Some(4)));
        check(None, Some(50), 3, Ok(Some(1)));
        check(Some(3), Some(50), 8, Ok(Some(3)));
        check(Some(9), Some(50), 8, Ok(Some(4)));
        check(None, Some(100), 1, Ok(Some(1)));
        check(None, Some(20), 4, Err(()));
    }

    #[test]
    fn hours_may_go_over_midnight() {
        let check = |text: &str, inside: &[u32], outside: &[u32]| {
            let hours: Hours = text.parse().expect("hours");
            assert_eq!(hours.to_string().parse(), Ok(hours));
            assert!(inside.iter().all(|hour| hours.contains(*hour)), "{text}");
            assert!(!outside.iter().any(|hour| hours.contains(*hour)), "{text}");
        };
        check("18-8", &[18, 23, 0, 7], &[8, 12, 17]);
        check("9-17", &[9, 16], &[8, 17, 0, 23]);
        check("20-24", &[20, 23], &[0, 19]);
        check("24-6", &[0, 5], &[6, 23]);
        check("0-24", &[0, 12, 23], &[]);
        for wrong in ["", "8", "8-8", "24-0", "8-25", "-1-8", "a-b", "18-8-9"] {
            assert!(wrong.parse::<Hours>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_machine_sheds_before_it_leaves_and_comes_back_once_there_is_room() {
        let (turn, begin) = (Availability::default(), Clock::system().now());
        // What is read at which second: whether it sheds, and whether it takes part.
        let readings = [
            (Some(0.5), 0, false, true),
            (Some(0.919), 1, false, true),
            (Some(0.92), 2, true, true),
            (Some(0.949), 3, true, true),
            (Some(0.91), 4, false, true),
            (Some(0.95), 5, true, false),
            (Some(0.93), 40, true, false),
            (Some(0.5), 69, false, false),
            (Some(0.5), 70, false, true),
            (Some(1.2), 71, true, false),
            // A system that no longer says anything keeps nobody away for ever.
            (None, 101, false, true),
        ];
        for (used, second, sheds, takes_part) in readings {
            turn.update_memory(used, begin + Duration::from_secs(second));
            let reason = turn.reason();
            assert_eq!(
                (turn.sheds_memory(), reason.is_none()),
                (sheds, takes_part),
                "{used:?} at {second}: {reason:?}"
            );
            assert!(reason.is_none_or(|reason| reason.contains("its memory is nearly used up")));
        }
    }

    #[test]
    fn a_machine_leaves_at_once_and_comes_back_after_a_quiet_while() {
        let hours = Some("18-8".parse().expect("hours"));
        let limits = OwnerLimits { hours, busy_percent: Some(50), celsius: Some(80), ..OwnerLimits::default() };
        let well = Reading { busy: Some(0.1), on_battery: Some(false), celsius: Some(60.0), hour: Some(20) };
        let begin = Clock::system().now();
        let check = |reading: Reading, times: u32, expected: Option<&str>| {
            let turn = Availability::default();
            (0..times).for_each(|_| turn.update(&limits, &reading, begin));
            let reason = turn.reason();
            assert_eq!(reason.is_some(), expected.is_some(), "{reading:?}: {reason:?}");
            assert!(reason.unwrap_or_default().contains(expected.unwrap_or_default()), "{reading:?}");
            turn.update(&limits, &well, begin + QUIET / 2);
            assert_eq!(turn.reason().is_some(), expected.is_some(), "{reading:?}: it comes back too soon");
            turn.update(&limits, &well, begin + QUIET);
            assert_eq!(turn.reason(), None, "{reading:?}: it does not come back");
        };
        check(well, 1, None);
        check(Reading::default(), 9, None);
        check(Reading { hour: Some(12), ..well }, 1, Some("18-8"));
        check(Reading { on_battery: Some(true), ..well }, 1, Some("battery"));
        check(Reading { celsius: Some(81.0), ..well }, 1, Some("81 °C"));
        check(Reading { busy: Some(0.6), ..well }, BUSY_READINGS - 1, None);
        check(Reading { busy: Some(0.6), ..well }, BUSY_READINGS, Some("owner's programs"));
    }
}
