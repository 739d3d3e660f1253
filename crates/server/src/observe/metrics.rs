//! Latency histograms and request counters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::http::StatusCode;

use super::adapters::AdapterRequests;

/// Buckets of a histogram: the first ends at 0.1 ms, each other a quarter further; the last has no end.
const BUCKETS: usize = 75;
const FIRST_END: f64 = 1e-4;
const GROWTH: f64 = 1.25;

/// Everything the server itself measures.
pub(crate) struct Metrics {
    pub(crate) started: Instant,
    /// From submission to leaving the queue.
    pub(crate) queue_time: Histogram,
    /// From submission to the first token.
    pub(crate) first_token: Histogram,
    /// From token to token.
    pub(crate) inter_token: Histogram,
    /// From submission to the end of the answer.
    pub(crate) end_to_end: Histogram,
    /// Tokens of resumed streams that the resume log had.
    pub(crate) known_tokens: AtomicU64,
    /// Tokens of resumed streams that were computed again although the client had them.
    pub(crate) regenerated: AtomicU64,
    /// Requests that use adapters.
    pub(crate) adapter_requests: AdapterRequests,
    /// Requests answered, by the first digit of their status.
    pub(crate) responses: [AtomicU64; 6],
    /// Requests whose response is not complete.
    pub(crate) in_flight: AtomicU64,
    /// Open connections.
    pub(crate) connections: AtomicU64,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            started: Instant::now(),
            queue_time: Histogram::default(),
            first_token: Histogram::default(),
            inter_token: Histogram::default(),
            end_to_end: Histogram::default(),
            known_tokens: AtomicU64::new(0),
            regenerated: AtomicU64::new(0),
            adapter_requests: AdapterRequests::default(),
            responses: Default::default(),
            in_flight: AtomicU64::new(0),
            connections: AtomicU64::new(0),
        }
    }
}

impl Metrics {
    /// Counts a response.
    pub(crate) fn responded(&self, status: StatusCode) {
        self.responses[usize::from(status.as_u16() / 100).min(5)].fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts durations by bucket, without a lock.
pub(crate) struct Histogram {
    counts: [AtomicU64; BUCKETS],
    nanoseconds: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: [const { AtomicU64::new(0) }; BUCKETS], nanoseconds: AtomicU64::new(0) }
    }
}

impl Histogram {
    pub(crate) fn observe(&self, duration: Duration) {
        let steps = (libm::log(duration.as_secs_f64() / FIRST_END) / libm::log(GROWTH)).ceil();
        // A duration below the first end, 0 included, gives a negative number, which the cast makes 0.
        self.counts[(steps as usize).min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
        self.nanoseconds.fetch_add(duration.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Durations observed.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Their sum in seconds.
    pub(crate) fn sum(&self) -> f64 {
        self.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9
    }

    /// The end of every bucket but the last, in seconds, and how many durations lie below it.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let below = self.counts[..BUCKETS - 1].iter().scan(0, |total, count| {
            *total += count.load(Ordering::Relaxed);
            Some(*total)
        });
        below.enumerate().map(|(bucket, below)| (bucket_end(bucket), below))
    }

    /// The duration in seconds that this fraction of all durations does not exceed; `None` before the first.
    pub(crate) fn quantile(&self, fraction: f64) -> Option<f64> {
        let total = self.count();
        let rank = (fraction * total as f64).ceil().max(1.0) as u64;
        let found = self.cumulative().find(|(_, below)| *below >= rank).map(|(end, _)| end);
        (total > 0).then(|| found.unwrap_or(bucket_end(BUCKETS - 1)))
    }
}

fn bucket_end(bucket: usize) -> f64 {
    FIRST_END * GROWTH.powi(bucket as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_within_a_bucket() {
        let histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        for milliseconds in 1..=1000 {
            histogram.observe(Duration::from_millis(milliseconds));
        }
        for (fraction, expected) in [(0.5, 0.5), (0.95, 0.95), (0.99, 0.99), (1.0, 1.0)] {
            let found = histogram.quantile(fraction).unwrap();
            assert!(found >= expected && found <= expected * GROWTH, "{fraction}: {found}");
        }
        assert_eq!(histogram.count(), 1000);
        assert!((histogram.sum() - 500.5).abs() < 1e-6);
        histogram.observe(Duration::ZERO);
        histogram.observe(Duration::from_secs(1 << 40));
        assert_eq!(histogram.count(), 1002);
        assert_eq!(histogram.cumulative().next().unwrap().1, 1);
    }
}
