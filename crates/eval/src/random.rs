//! Pseudo-random numbers that are the same for the same seed.

/// A stream of numbers; splitmix64.
pub(crate) struct Random {
    state: u64,
}

impl Random {
    /// The stream of this number under a seed; streams do not resemble each other.
    pub(crate) fn new(seed: u64, stream: u64) -> Random {
        let mut random = Random { state: seed };
        random.state = random.next() ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        random.next();
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to 1, without 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// From 0 to `end`, without `end`; 0 when that is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((self.unit() * end as f64) as u64).min(end.saturating_sub(1))
    }

    /// The time between two events of a Poisson process.
    pub(crate) fn pause(&mut self, per_second: f64) -> f64 {
        -libm::log(1.0 - self.unit()) / per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_spread_and_repeat() {
        let take = |seed, stream| {
            let mut random = Random::new(seed, stream);
            [random.next(), random.next()]
        };
        assert_eq!(take(1, 2), take(1, 2));
        assert!(take(1, 2) != take(2, 1) && take(1, 2) != take(1, 3));
        let mut random = Random::new(7, 0);
        let pauses: f64 = (0..10_000).map(|_| random.pause(4.0)).sum();
        assert!((pauses / 10_000.0 - 0.25).abs() < 0.01, "{pauses}");
        assert!((0..1000).all(|_| random.below(3) < 3));
        assert_eq!(random.below(0), 0);
    }
}
