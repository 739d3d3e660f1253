//! Who was turned away or not believed, without letting anyone fill the log: one record for each in a minute says how
//! often.

use std::time::{Duration, Instant};

use super::record::{Decision, Entry, Verb};

/// The time for which further refusals of the same machine are only counted.
const MINUTE: Duration = Duration::from_secs(60);
/// Machines that are counted one by one; all others are counted together.
const MOST: usize = 256;
/// What the others are called.
const OTHERS: &str = "others";

/// Refusals of the last minute.
pub(crate) struct Refusals {
    /// What was refused.
    verb: Verb,
    recent: Vec<Refused>,
}

struct Refused {
    who: String,
    since: Instant,
    /// How often after the one that was recorded.
    more: u64,
}

impl Refusals {
    /// Nobody was refused this yet.
    pub(crate) fn of(verb: Verb) -> Refusals {
        Refusals { verb, recent: Vec::new() }
    }

    /// Counts a refusal; gives the record of it, if there should be one now.
    pub(crate) fn count(&mut self, who: &str, problem: &str, now: Instant) -> Option<Entry> {
        let known = self.recent.iter().any(|refused| refused.who == who);
        let who = if known || self.recent.len() < MOST { who } else { OTHERS };
        if let Some(refused) = self.recent.iter_mut().find(|refused| refused.who == who) {
            refused.more += 1;
            return None;
        }
        self.recent.push(Refused { who: who.to_owned(), since: now, more: 0 });
        Some(Entry { note: problem.to_owned(), ..Entry::new(who, self.verb, Decision::Refused) })
    }

    /// Records of those that were only counted, once their minute is over.
    pub(crate) fn over(&mut self, now: Instant) -> Vec<Entry> {
        let verb = self.verb;
        let is_over = |refused: &Refused| now.saturating_duration_since(refused.since) >= MINUTE;
        let over = self.recent.extract_if(.., |refused| is_over(refused)).filter(|refused| refused.more > 0);
        let entry = |refused: Refused| Entry {
            note: format!("{} more times within a minute", refused.more),
            ..Entry::new(&refused.who, verb, Decision::Refused)
        };
        over.map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Clock;

    #[test]
    fn a_stranger_who_knocks_a_thousand_times_makes_two_records() {
        let (mut refusals, begin) = (Refusals::of(Verb::Connect), Clock::system().now());
        let mut knock = |who: &str| refusals.count(who, "no key", begin).map(|entry| entry.who);
        assert_eq!(knock("10.0.0.1").as_deref(), Some("10.0.0.1"));
        assert!((0..1000).all(|_| knock("10.0.0.1").is_none()));
        // Many strangers at once are counted together after a while.
        let recorded: Vec<String> = (0..10_000).filter_map(|number| knock(&format!("stranger {number}"))).collect();
        assert_eq!((recorded.len(), recorded.last().map(String::as_str)), (MOST, Some(OTHERS)));
        assert!(refusals.over(begin + MINUTE / 2).is_empty());
        let notes: Vec<String> = refusals.over(begin + MINUTE).into_iter().map(|entry| entry.note).collect();
        assert_eq!(notes, ["1000 more times within a minute", "9744 more times within a minute"]);
        assert!(refusals.count("10.0.0.1", "again", begin + MINUTE).is_some());
    }
}
