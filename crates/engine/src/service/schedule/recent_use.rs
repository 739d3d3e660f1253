//! What a tenant has taken of the machine's time lately, and whether that is more than its share.

/// What was taken so many seconds ago counts little any more.
const MEMORY_SECONDS: f64 = 1.0;

/// Seconds of steps, those that are long ago counting less and less.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecentUse {
    seconds: f64,
    at: f64,
    exceeds: bool,
}

impl RecentUse {
    /// A step took so many seconds for this tenant.
    pub(super) fn add(&mut self, seconds: f64) {
        self.seconds += seconds;
    }

    /// Compares what counts now with the share of the time that the tenant may have. One that took more has to stay below
    /// half of it for a while before it no longer does: the length of others' steps must not go up and down. Who is alone may
    /// have everything.
    pub(super) fn judge(&mut self, fair: f64, now: f64) {
        self.seconds *= libm::exp(-(now - self.at).max(0.0) / MEMORY_SECONDS);
        self.at = now;
        let most = if self.exceeds { fair / 2.0 } else { fair };
        self.exceeds = fair < 1.0 && self.share() > most;
    }

    /// Whether it was more than the share.
    pub(super) fn exceeds(&self) -> bool {
        self.exceeds
    }

    /// Whether it hardly counts any more.
    pub(super) fn is_over(&self) -> bool {
        self.share() < 0.001
    }

    /// The part of the time lately that was this tenant's.
    fn share(&self) -> f64 {
        self.seconds / MEMORY_SECONDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether it exceeds a share after so many seconds of steps of 10 ms, of which it takes a part.
    fn exceeds_after(recent: &mut RecentUse, fair: f64, part: f64, seconds: f64) -> bool {
        for _ in 0..(seconds * 100.0) as usize {
            recent.add(0.01 * part);
            recent.judge(fair, recent.at + 0.01);
        }
        recent.exceeds()
    }

    #[test]
    fn more_than_a_share_is_too_much_until_it_is_less_than_half_of_it() {
        let mut recent = RecentUse::default();
        assert!(!exceeds_after(&mut recent, 0.5, 0.9, 0.3), "a moment is not enough");
        assert!(exceeds_after(&mut recent, 0.5, 0.9, 1.0));
        assert!(exceeds_after(&mut recent, 0.5, 0.3, 5.0));
        assert!(!exceeds_after(&mut recent, 0.5, 0.2, 5.0));
        assert!(!exceeds_after(&mut recent, 0.5, 0.45, 5.0));
        assert!(!recent.is_over());
        recent.judge(0.5, recent.at + 10.0);
        assert!(recent.is_over());
    }

    #[test]
    fn who_is_alone_may_have_everything() {
        assert!(!exceeds_after(&mut RecentUse::default(), 1.0, 1.0, 10.0));
    }
}
