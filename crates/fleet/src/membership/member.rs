//! A machine of a fleet: its name, its key, and whether it may take part.

use serde::{Deserialize, Serialize};

use crate::Digest;

/// Seconds for which a machine uses a key before it makes a new one.
pub(crate) const KEY_ROTATES: u64 = 30 * DAY;
/// Seconds after which a key that was not replaced is refused.
pub(crate) const KEY_EXPIRES: u64 = 90 * DAY;
const DAY: u64 = 86_400;

/// A machine of the fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// What people call it.
    pub name: String,
    /// The digest of its public key.
    pub key: Digest,
    /// Why it is not used until people say so, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distrusted: Option<String>,
    /// When it got this key, in seconds since 1970. A machine of an older list gets its date when it next connects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued: Option<u64>,
    /// The key that takes the place of the other once it is used. Until then both are the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Digest>,
    /// Whether people want it to have a new key now.
    #[serde(default, skip_serializing_if = "is_false")]
    pub rotate: bool,
}

impl Member {
    /// A machine whose key has no date yet.
    pub fn new(name: impl Into<String>, key: Digest) -> Member {
        Member { name: name.into(), key, distrusted: None, issued: None, next: None, rotate: false }
    }

    pub(super) fn has_key(&self, key: Digest) -> bool {
        self.key == key || self.next == Some(key)
    }

    /// Seconds since it got its key; a clock that was set back makes no key older.
    fn key_age(&self, now: u64) -> u64 {
        self.issued.map_or(0, |issued| now.saturating_sub(issued))
    }

    /// Whether its key is too old to be used, at this time in seconds since 1970.
    pub fn is_expired(&self, now: u64) -> bool {
        self.key_age(now) >= KEY_EXPIRES
    }

    /// Whether it should have a new key.
    pub(super) fn is_rotation_due(&self, now: u64) -> bool {
        self.rotate || self.next.is_some() || self.key_age(now) >= KEY_ROTATES
    }
}

/// Whom a key belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// A machine that may take part.
    Member(String),
    /// One whose key is too old.
    Expired(String),
    /// One that is excluded until people readmit it.
    Excluded(String),
    /// One that was revoked.
    Revoked(String),
    /// Nobody who may take part.
    Unknown,
}

/// A machine that was a member, and is told so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RevokedMember {
    pub(super) name: String,
    pub(super) key: Digest,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
pub(super) fn is_false(value: &bool) -> bool {
    !value
}
