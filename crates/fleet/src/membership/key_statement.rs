//! Statements of which keys a fleet has, each signed with the keys of the one before.
//!
//! A fleet has two keys: its coordinator proves one on every connection, and signs what it pushes with the other, the
//! targets key. Both sign every statement, so that whoever has got hold of one can replace neither.

use serde::{Deserialize, Serialize};

use super::member::KEY_EXPIRES;
use crate::audit::{SEAL_BYTES, Seal};
use crate::wire::link::LinkError;
use crate::wire::message::{Reader, Writer};
use crate::{Digest, FleetError, Identity};

/// What the signatures are made for, so that they are of no use for anything else.
const STATEMENT: &[u8] = b"cascadia fleet keys, statement, version 1";

/// One of the keys of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetKey {
    /// The one that the coordinator proves on every connection, and signs heads of the audit log with.
    Coordinator,
    /// The one that signs what is pushed.
    Targets,
}

impl FleetKey {
    /// Both.
    pub const ALL: [FleetKey; 2] = [FleetKey::Coordinator, FleetKey::Targets];

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            FleetKey::Coordinator => "coordinator key",
            FleetKey::Targets => "targets key",
        }
    }
}

/// A public key, and how long it is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatedKey {
    /// Its digest.
    pub pin: Digest,
    /// Since when it is used, in seconds since 1970.
    pub issued: u64,
    /// From when on it is refused, in seconds since 1970.
    pub expires: u64,
}

impl DatedKey {
    /// One that is used from now on.
    pub(crate) fn new(pin: Digest, now: u64) -> DatedKey {
        DatedKey { pin, issued: now, expires: now.saturating_add(KEY_EXPIRES) }
    }

    fn write(&self, writer: Writer) -> Writer {
        writer.bytes(&self.pin.0).bytes(&self.issued.to_le_bytes()).bytes(&self.expires.to_le_bytes())
    }

    fn read(reader: &mut Reader<'_>) -> Result<DatedKey, LinkError> {
        let (pin, issued) = (Digest(reader.array()?), u64::from_le_bytes(reader.array()?));
        Ok(DatedKey { pin, issued, expires: u64::from_le_bytes(reader.array()?) })
    }
}

/// Which keys a fleet has from some time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyStatement {
    /// Which fleet: the digest of the first key that its coordinator had.
    pub fleet: Digest,
    /// Statements of this fleet before.
    pub number: u64,
    /// The coordinator's key.
    pub coordinator: DatedKey,
    /// The key that signs what is pushed.
    pub targets: DatedKey,
    /// Until when the keys of the statement before are good as well, in seconds since 1970.
    pub previous_until: u64,
}

impl KeyStatement {
    /// Bytes of one in a message.
    const BYTES: usize = 32 + 8 + 2 * (32 + 8 + 8) + 8;

    /// One of the keys.
    pub fn key(&self, which: FleetKey) -> &DatedKey {
        match which {
            FleetKey::Coordinator => &self.coordinator,
            FleetKey::Targets => &self.targets,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let writer = Writer::default().bytes(&self.fleet.0).bytes(&self.number.to_le_bytes());
        let writer = FleetKey::ALL.iter().fold(writer, |writer, which| self.key(*which).write(writer));
        writer.bytes(&self.previous_until.to_le_bytes()).0
    }

    fn read(reader: &mut Reader<'_>) -> Result<KeyStatement, LinkError> {
        let (fleet, number) = (Digest(reader.array()?), u64::from_le_bytes(reader.array()?));
        let (coordinator, targets) = (DatedKey::read(reader)?, DatedKey::read(reader)?);
        let previous_until = u64::from_le_bytes(reader.array()?);
        Ok(KeyStatement { fleet, number, coordinator, targets, previous_until })
    }
}

/// The private keys of a fleet.
#[derive(Clone)]
pub struct KeyPair {
    /// The coordinator's key.
    pub coordinator: Identity,
    /// The key that signs what is pushed.
    pub targets: Identity,
}

impl KeyPair {
    /// One of them.
    pub(crate) fn key(&self, which: FleetKey) -> &Identity {
        match which {
            FleetKey::Coordinator => &self.coordinator,
            FleetKey::Targets => &self.targets,
        }
    }

    fn sign(&self, message: &[u8]) -> Result<[Seal; 2], FleetError> {
        Ok([Seal::new(&self.coordinator, message)?, Seal::new(&self.targets, message)?])
    }
}

/// A statement with its signatures: of the keys before it, and of the keys that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignedKeys {
    /// What is signed.
    pub(crate) statement: KeyStatement,
    pub(super) old: [Seal; 2],
    pub(super) new: [Seal; 2],
}

impl SignedKeys {
    /// Bytes of one in a message.
    pub(crate) const BYTES: usize = KeyStatement::BYTES + 4 * SEAL_BYTES;

    /// Signs a statement.
    pub(crate) fn new(statement: KeyStatement, old: &KeyPair, new: &KeyPair) -> Result<SignedKeys, FleetError> {
        let message = [STATEMENT, &statement.bytes()].concat();
        Ok(SignedKeys { statement, old: old.sign(&message)?, new: new.sign(&message)? })
    }

    /// Whether whoever had these keys made it; one that is not known may be any.
    pub(crate) fn is_signed_with(&self, coordinator: Digest, targets: Option<Digest>) -> bool {
        let [by_coordinator, by_targets] = &self.old;
        // auth: keys-old-coordinator, keys-old-targets
        by_coordinator.pin() == coordinator
            && targets.is_none_or(|targets| by_targets.pin() == targets)
            && self.hold(&self.old)
    }

    /// Whether whoever has the keys that it is about agrees.
    pub(crate) fn is_accepted(&self) -> bool {
        let [coordinator, targets] = &self.new;
        // auth: keys-new-coordinator, keys-new-targets
        coordinator.pin() == self.statement.coordinator.pin
            && targets.pin() == self.statement.targets.pin
            && self.hold(&self.new)
    }

    fn hold(&self, seals: &[Seal; 2]) -> bool {
        let message = [STATEMENT, &self.statement.bytes()].concat();
        seals.iter().all(|seal| seal.holds(&message))
    }

    pub(crate) fn write(&self, writer: Writer) -> Writer {
        let writer = writer.bytes(&self.statement.bytes());
        self.old.iter().chain(&self.new).fold(writer, |writer, seal| writer.bytes(&seal.0))
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<SignedKeys, LinkError> {
        let statement = KeyStatement::read(reader)?;
        let mut seals = || Ok::<_, LinkError>([Seal(reader.array()?), Seal(reader.array()?)]);
        Ok(SignedKeys { statement, old: seals()?, new: seals()? })
    }
}
