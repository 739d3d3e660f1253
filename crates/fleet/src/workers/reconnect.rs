//! When a worker connects again after a connection has ended.

use std::time::Duration;

/// The pause after the first connection that fails; every other doubles it.
const SHORTEST: Duration = Duration::from_millis(100);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(2);
/// The same for a worker that was refused so often in a row that it is not needed soon.
const LONGEST_REFUSED: Duration = Duration::from_secs(30);
const ENOUGH_REFUSALS: u32 = 3;

/// Knows how the last connections ended.
pub struct Reconnect {
    pause: Duration,
    refusals: u32,
}

impl Default for Reconnect {
    fn default() -> Reconnect {
        Reconnect { pause: SHORTEST, refusals: 0 }
    }
}

impl Reconnect {
    /// A connection ended after so long, or was refused. Gives the pause before the next one.
    pub fn ended(&mut self, lasted: Duration, is_refused: bool) -> Duration {
        self.refusals = if is_refused { self.refusals.saturating_add(1) } else { 0 };
        let longest = if self.refusals < ENOUGH_REFUSALS { LONGEST } else { LONGEST_REFUSED };
        // A connection that lasted a while was a good one.
        let was_good = lasted > LONGEST && !is_refused;
        self.pause = if was_good { SHORTEST } else { (2 * self.pause).min(longest) };
        self.pause
    }

    /// Whether the worker was just refused so often that it need not keep its stage loaded.
    pub fn became_unneeded(&self) -> bool {
        self.refusals == ENOUGH_REFUSALS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_until_a_connection_lasts() {
        let (mut reconnect, short) = (Reconnect::default(), Duration::from_millis(5));
        let mut pauses = |times: usize, lasted: Duration, is_refused: bool| -> Vec<u128> {
            (0..times).map(|_| reconnect.ended(lasted, is_refused).as_millis()).collect()
        };
        assert_eq!(pauses(6, short, false), [200, 400, 800, 1600, 2000, 2000]);
        assert_eq!(pauses(2, Duration::from_secs(60), false), [100, 100]);
        assert_eq!(pauses(9, short, true), [200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000]);
        assert!(!reconnect.became_unneeded(), "that was said once");
        reconnect.ended(short, false);
        let became_unneeded = |_| {
            reconnect.ended(short, true);
            reconnect.became_unneeded()
        };
        assert_eq!([0; 4].map(became_unneeded), [false, false, true, false]);
    }
}
