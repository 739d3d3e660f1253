//! What can happen to a machine, and how it is drawn.

use std::time::{Duration, Instant};

use clap::ValueEnum;

use super::relay::Weather;
use crate::flags::Fault;

/// Numbers from a seed.
pub(super) struct Chance(pub(super) u64);

impl Chance {
    /// A number below `end`.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// For how long a machine must be away for everyone to have noticed it.
const NOTICEABLE: Duration = Duration::from_millis(500);

impl Fault {
    /// Mostly kills.
    pub(super) fn choose(chance: &mut Chance) -> Fault {
        match chance.below(10) {
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
    pub(super) fn weather(self) -> Option<Weather> {
        let fair = Weather::default();
        match self {
            Fault::Kill | Fault::Hang | Fault::Cut => None,
            Fault::Silence => Some(Weather { passes: [false, false], ..fair }),
            Fault::Deaf => Some(Weather { passes: [false, true], ..fair }),
            Fault::Mute => Some(Weather { passes: [true, false], ..fair }),
            Fault::Dribble => Some(Weather { delay: Duration::from_secs(1), piece: 1, ..fair }),
            Fault::Slow => Some(Weather { delay: Duration::from_millis(50), ..fair }),
        }
    }

    /// The longest that it may go unnoticed; what is slow must be so for a while to be told from what is busy.
    pub(super) fn noticed_within(self) -> Duration {
        Duration::from_secs(if self == Fault::Slow { 60 } else { 20 })
    }

    /// Whether a machine that computes and is away for so long must be noticed.
    pub(super) fn is_noticeable(self, absence: Duration) -> bool {
        matches!(self, Fault::Kill | Fault::Cut | Fault::Slow) || absence >= NOTICEABLE
    }
}

/// A fault that happened.
pub(super) struct Strike {
    pub(super) fault: Fault,
    pub(super) stage: usize,
    /// Whether the machine computed; otherwise it was a spare.
    pub(super) computed: bool,
    pub(super) at: Instant,
    /// When the coordinator knew that a machine that computed is lost or slow.
    pub(super) noticed: Option<Instant>,
    /// Whether nobody noticed what should have been.
    pub(super) unnoticed: bool,
}
