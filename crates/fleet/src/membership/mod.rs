//! Who belongs to a fleet: keys, invitations, the list of members, discovery, quarantine.

pub(crate) mod connection_slots;
pub(crate) mod discovery;
mod handshakes;
pub(crate) mod identity;
pub(crate) mod invitation;
pub(crate) mod listener;
pub(crate) mod members;
pub(crate) mod quarantine;

pub use discovery::{Announcement, look_around};
pub use identity::{Identity, PendingIdentity};
pub use invitation::Invitation;
pub use listener::{Arrival, Listener, join};
pub use members::{Member, Members};
pub use quarantine::Quarantine;
