//! How full the memory is that the service shares with others: that of the machine, or of its control group.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cascadia_weights::{MEMORY_REFUSE, MEMORY_SHED};

/// The newest reading, and what follows from it.
#[derive(Debug, Default)]
pub(super) struct MemoryGauge {
    percent: AtomicU32,
    is_full: AtomicBool,
}

impl MemoryGauge {
    /// Takes in which share is used; says whether what does not compute is to be released. No job is taken from when memory
    /// was nearly used up until there is enough again.
    pub(super) fn update(&self, used: Option<f64>) -> bool {
        let used = used.unwrap_or_default();
        self.percent.store((100.0 * used).round() as u32, Ordering::Relaxed);
        let is_short = used >= MEMORY_SHED;
        if used >= MEMORY_REFUSE || !is_short {
            self.is_full.store(is_short, Ordering::Relaxed);
        }
        is_short
    }

    /// The share that is used, in percent; 0 where nobody says.
    pub(super) fn percent(&self) -> u32 {
        self.percent.load(Ordering::Relaxed)
    }

    /// Whether no job is taken.
    pub(super) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_full_until_there_is_enough_again() {
        let gauge = MemoryGauge::default();
        let readings = [(0.5, false), (0.93, false), (0.96, true), (0.93, true), (0.91, false), (0.94, false)];
        for (used, is_full) in readings {
            assert_eq!(gauge.update(Some(used)), used >= 0.92, "{used}");
            assert_eq!((gauge.is_full(), gauge.percent()), (is_full, (100.0 * used).round() as u32), "{used}");
        }
        gauge.update(Some(0.99));
        assert!(!gauge.update(None) && !gauge.is_full(), "where nobody says, nothing is refused");
    }
}
