//! What can happen to a machine, and how it is drawn.

use std::time::Instant;

/// Numbers from a seed.
pub(super) struct Chance(pub(super) u64);

impl Chance {
    /// A number below `end`.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// What happens to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Its process is killed (`kill -9`) and started again.
    Kill,
    /// Its process is stopped for a while.
    Hang,
    /// Its connection is cut.
    Cut,
    /// Nothing passes on its connection for a while, and nobody is told.
    Silence,
}

/// All of them, by name.
pub(super) const FAULTS: [(Fault, &str); 4] =
    [(Fault::Kill, "kill"), (Fault::Hang, "hang"), (Fault::Cut, "cut"), (Fault::Silence, "silence")];

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
}

/// A fault that happened.
pub(super) struct Strike {
    pub(super) fault: Fault,
    pub(super) stage: usize,
    /// Whether the machine computed; otherwise it was a spare.
    pub(super) computed: bool,
    pub(super) at: Instant,
    /// When the coordinator knew that a machine that computed is lost.
    pub(super) noticed: Option<Instant>,
}
