//! Who belongs to a fleet: keys, invitations, the list of members, discovery, quarantine.

mod approval;
pub(crate) mod connection_slots;
pub(crate) mod discovery;
#[cfg(test)]
mod forgeries;
mod handshakes;
pub(crate) mod identity;
pub(crate) mod invitation;
pub(crate) mod listener;
pub(crate) mod members;
pub(crate) mod quarantine;
pub(crate) mod rotation;

pub use discovery::{Announcement, look_around};
pub use identity::{Identity, PendingIdentity};
pub use invitation::Invitation;
pub use listener::{Arrival, JoinedFleet, Listener, join};
pub use members::{Member, Members, PendingMember};
pub use quarantine::Quarantine;
