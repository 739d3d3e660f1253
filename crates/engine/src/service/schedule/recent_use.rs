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
    /// half of it for a while before it no longer does: the length of others' steps must not go up and down.
    pub(super) fn judge(&mut self, fair: f64, now: f64) {
        self.seconds *= (-(now - self.at).max(0.0) / MEMORY_SECONDS).exp();
        self.at = now;
        let most = if self.exceeds { fair / 2.0 } else { fair };
        self.exceeds = self.share() > most;
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
