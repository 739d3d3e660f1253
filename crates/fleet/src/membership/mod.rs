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
#[cfg(test)]
mod key_forgeries;
pub(crate) mod key_statement;
pub(crate) mod known_keys;
pub(crate) mod listener;
pub(crate) mod members;
pub(crate) mod quarantine;
pub(crate) mod rotation;
pub(crate) mod shown_keys;

pub use discovery::{Announcement, look_around};
pub use fleet_keys::{FleetKeys, HeldKeys, KEY_GRACE, Rotation};
pub use identity::{Identity, PendingIdentity};
pub use invitation::Invitation;
pub use key_statement::{DatedKey, FleetKey, KeyPair, KeyStatement};
pub use known_keys::KnownKeys;
pub use listener::{Arrival, JoinedFleet, Listener, join};
pub use members::{Member, Members, PendingMember};
pub use quarantine::Quarantine;
