//! The faults that are injected, and how they are chosen.

use std::time::{Duration, Instant};

use clap::ValueEnum;

use super::relay::Traffic;
use crate::flags::Fault;

/// Numbers from a seed.
pub(super) struct SeededRandom(pub(super) u64);

impl SeededRandom {
    /// A number below `end`.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// How long a worker must be away to be noticed for certain.
const NOTICEABLE: Duration = Duration::from_millis(500);

impl Fault {
    /// Mostly kills.
    pub(super) fn choose(random: &mut SeededRandom) -> Fault {
        match random.below(10) {
            0 if cfg!(unix) => Fault::Hang,
            1 => Fault::Cut,
            2 => Fault::Silence,
            _ => Fault::Kill,
        }
    }

    /// What people call it.
    pub(super) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// What becomes of a connection, if it is about that.
    pub(super) fn traffic(self) -> Option<Traffic> {
        let normal = Traffic::default();
        match self {
            Fault::Kill | Fault::Hang | Fault::Cut => None,
            Fault::Silence => Some(Traffic { passes: [false, false], ..normal }),
            Fault::Deaf => Some(Traffic { passes: [false, true], ..normal }),
            Fault::Mute => Some(Traffic { passes: [true, false], ..normal }),
            Fault::Dribble => Some(Traffic { delay: Duration::from_secs(1), piece: 1, ..normal }),
            Fault::Slow => Some(Traffic { delay: Duration::from_millis(50), ..normal }),
        }
    }

    /// The longest that it may go unnoticed; what is slow must be so for a while to be told from what is busy.
    pub(super) fn noticed_within(self) -> Duration {
        Duration::from_secs(if self == Fault::Slow { 60 } else { 20 })
    }

    /// Whether an active worker that is away for so long must be noticed.
    pub(super) fn is_noticeable(self, absence: Duration) -> bool {
        matches!(self, Fault::Kill | Fault::Cut | Fault::Slow) || absence >= NOTICEABLE
    }
}

/// A fault that was injected.
pub(super) struct InjectedFault {
    pub(super) fault: Fault,
    pub(super) stage: usize,
    /// Whether the worker computed; otherwise it was on standby.
    pub(super) computed: bool,
    pub(super) at: Instant,
    /// When the coordinator knew that the active worker is lost or slow.
    pub(super) noticed: Option<Instant>,
    /// Whether nobody noticed what should have been.
    pub(super) unnoticed: bool,
}
