//! Reads stored shards again and again, slowly, and finds those that are damaged.

use std::path::Path;
use std::time::Duration;

use crate::{Clock, Digest, FleetError};

/// Everything is read again within half a day.
pub(crate) const PERIOD: Duration = Duration::from_secs(12 * 3600);
/// Bytes that are read in a second at most, unless there is more than can be read so within the period.
const RATE: u64 = 16 << 20;

/// How quickly shards of so many bytes are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScrubRate(u64);

impl ScrubRate {
    /// For so many bytes in all.
    pub(crate) fn for_bytes(bytes: u64) -> ScrubRate {
        ScrubRate(RATE.max(bytes / PERIOD.as_secs() + 1))
    }

    /// Whether a file still has its digest; nothing if `goes_on` says no before it was read.
    pub(crate) fn verify(
        self,
        clock: &Clock,
        (path, digest): (&Path, Digest),
        goes_on: impl Fn() -> bool,
    ) -> Result<Option<bool>, FleetError> {
        let found = Digest::of_file_in_pieces(path, |bytes| {
            clock.sleep(Duration::from_secs_f64(bytes as f64 / self.0 as f64));
            goes_on()
        })?;
        Ok(found.map(|(found, _)| found == digest))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::clock::Simulation;

    #[test]
    fn a_flipped_bit_is_found_at_the_speed_that_is_allowed() {
        let (simulation, folder) = (Simulation::new(1), tempfile::tempdir().expect("a folder"));
        let (clock, path) = (simulation.clock(), folder.path().join("shard"));
        let mut bytes = vec![7; 3 * RATE as usize];
        let digest = Digest::of(&bytes);
        fs::write(&path, &bytes).expect("it can be written");
        let rate = ScrubRate::for_bytes(bytes.len() as u64);
        let verify = |goes_on: bool| rate.verify(clock, (&path, digest), || goes_on).expect("it can be read");
        let begin = clock.now();
        assert_eq!(verify(true), Some(true));
        assert_eq!(clock.since(begin), Duration::from_secs(3));
        assert_eq!(verify(false), None);
        bytes[2 * RATE as usize] ^= 4;
        fs::write(&path, &bytes).expect("it can be written");
        assert_eq!(verify(true), Some(false));
        fs::remove_file(&path).expect("it is there");
        assert!(rate.verify(clock, (&path, digest), || true).is_err());
        simulation.finish();
    }

    #[test]
    fn everything_is_read_within_the_period() {
        for bytes in [0, 50 << 30, 2 << 40, 100 << 40] {
            let ScrubRate(rate) = ScrubRate::for_bytes(bytes);
            assert!(rate >= RATE && bytes / rate <= PERIOD.as_secs(), "{bytes}");
        }
    }
}
