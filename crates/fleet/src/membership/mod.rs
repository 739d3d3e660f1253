//! Who belongs to a fleet: keys, invitations, the list of members, discovery, quarantine.

mod approval;
pub(crate) mod connection_slots;
pub(crate) mod discovery;
pub(crate) mod fleet_keys;
#[cfg(test)]
mod forgeries;
mod handshakes;
pub(crate) mod identity;
pub(crate) mod invitation;
mod key_exchange;
#[cfg(test)]
mod key_forgeries;
pub(crate) mod key_statement;
pub(crate) mod known_keys;
pub(crate) mod listener;
pub(crate) mod member;
pub(crate) mod members;
pub(crate) mod pairing;
mod pairing_code;
#[cfg(test)]
mod pairing_forgeries;
pub(crate) mod pairings;
pub(crate) mod quarantine;
pub(crate) mod rotation;
pub(crate) mod shown_keys;

pub use discovery::{Announcement, FoundCoordinator, find_coordinators, look_around};
pub use fleet_keys::{FleetKeys, HeldKeys, KEY_GRACE, Rotation};
pub use identity::{Identity, PendingIdentity};
pub use invitation::Invitation;
pub use key_statement::{DatedKey, FleetKey, KeyPair, KeyStatement};
pub use known_keys::KnownKeys;
pub use listener::{Arrival, JoinedFleet, Listener, Listening, join};
pub use member::Member;
pub use members::{Members, PendingMember};
pub use pairing::{PairedFleet, pair};
pub use pairing_code::PairingCode;
pub use pairings::{MOST_WRONG, PairRefusal, PairedMachine, Pairing, Pairings, RefusedMachine, ShownPairing};
pub use quarantine::Quarantine;
