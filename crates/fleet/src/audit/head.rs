//! Heads of an audit log: how far it goes, signed by the coordinator, countersigned and remembered by workers.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::record::Position;
use super::seal::{SEAL_BYTES, Seal};
use crate::json_file::{read_json, write_json};
use crate::membership::known_keys::KnownKeys;
use crate::wire::link::LinkError;
use crate::wire::message::{Reader, Writer, broken};
use crate::{Clock, Digest, FleetError, Identity};

/// What the two signatures are made for, so that they are of no use for anything else.
const HEAD: &[u8] = b"cascadia fleet audit head, version 1";
const WITNESS: &[u8] = b"cascadia fleet audit witness, version 1";
/// The most heads that a worker remembers; of old ones it keeps every second, then every fourth, and so on.
const MOST_HEADS: usize = 256;

/// How far a log goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Whose log.
    pub coordinator: Digest,
    /// How many records it has.
    pub count: u64,
    /// The digest of all of them.
    pub hash: Digest,
    /// When this was signed, in seconds since 1970.
    pub time: u64,
}

/// A head with the coordinator's signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedHead {
    /// What is signed.
    pub head: Head,
    /// The coordinator's signature.
    pub seal: Seal,
}

/// A head that a worker has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Witness {
    /// What it has seen.
    pub seen: SignedHead,
    /// The worker's signature.
    pub seal: Seal,
}

impl Head {
    fn bytes(&self) -> Vec<u8> {
        let Head { coordinator, count, hash, time } = self;
        [&coordinator.0[..], &count.to_le_bytes(), &hash.0, &time.to_le_bytes()].concat()
    }

    fn message(&self) -> Vec<u8> {
        [HEAD, &self.bytes()].concat()
    }
}

impl SignedHead {
    /// Signs how far a log goes at this time, in seconds since 1970.
    pub fn new(identity: &Identity, position: Position, time: u64) -> Result<SignedHead, FleetError> {
        let Position { count, hash } = position;
        let head = Head { coordinator: identity.pin(), count, hash, time };
        Ok(SignedHead { head, seal: Seal::new(identity, &head.message())? })
    }

    /// Whether this is what the coordinator with that key signed.
    pub fn is_signed_by(&self, coordinator: Digest) -> bool {
        self.head.coordinator == coordinator && self.seal.pin() == coordinator && self.seal.holds(&self.head.message())
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        Writer::default().bytes(&self.head.bytes()).bytes(&self.seal.0).0
    }

    fn read(reader: &mut Reader<'_>) -> Result<SignedHead, LinkError> {
        let (coordinator, count) = (Digest(reader.array()?), u64::from_le_bytes(reader.array()?));
        let (hash, time) = (Digest(reader.array()?), u64::from_le_bytes(reader.array()?));
        let seal = Seal(reader.array::<SEAL_BYTES>()?);
        Ok(SignedHead { head: Head { coordinator, count, hash, time }, seal })
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<SignedHead, LinkError> {
        let mut reader = Reader(bytes);
        let head = SignedHead::read(&mut reader)?;
        reader.end()?;
        Ok(head)
    }
}

impl Witness {
    fn new(identity: &Identity, seen: SignedHead) -> Result<Witness, FleetError> {
        Ok(Witness { seen, seal: Seal::new(identity, &[WITNESS, &seen.bytes()].concat())? })
    }

    /// Whether a worker with this key has seen it.
    pub fn is_signed_by(&self, worker: Digest) -> bool {
        self.seal.pin() == worker && self.seal.holds(&[WITNESS, &self.seen.bytes()].concat())
    }
}

/// What a worker answers when it is shown a head: that it has seen it, or why it signs nothing.
pub(crate) type Countersignature = Result<Witness, String>;

pub(crate) fn testimony_bytes(countersignature: &Countersignature) -> Vec<u8> {
    match countersignature {
        Ok(witness) => Writer::default().number(1).bytes(&witness.seen.bytes()).bytes(&witness.seal.0).0,
        Err(problem) => Writer::default().number(0).text(problem).0,
    }
}

pub(crate) fn parse_testimony(bytes: &[u8]) -> Result<Countersignature, LinkError> {
    let mut reader = Reader(bytes);
    let countersignature = match reader.number()? {
        0 => Err(reader.text()?),
        1 => Ok(Witness { seen: SignedHead::read(&mut reader)?, seal: Seal(reader.array()?) }),
        _ => return Err(broken()),
    };
    reader.end()?;
    Ok(countersignature)
}

/// The heads that a worker has seen, in a file.
pub struct Witnesses {
    path: PathBuf,
    identity: Mutex<Identity>,
    keys: Mutex<KnownKeys>,
    clock: Clock,
    one_at_a_time: Mutex<()>,
}

impl Witnesses {
    /// What this machine remembers of its coordinator's log in a file.
    pub fn at(path: &Path, identity: Identity, coordinator: Digest) -> Witnesses {
        let (keys, clock) = (Mutex::new(KnownKeys::invited(coordinator)), Clock::default());
        Witnesses { path: path.to_owned(), identity: Mutex::new(identity), keys, clock, one_at_a_time: Mutex::new(()) }
    }

    /// The same with keys that expire by another clock than the system's.
    pub(crate) fn on_clock(self, clock: &Clock) -> Witnesses {
        Witnesses { clock: clock.clone(), ..self }
    }

    /// Takes heads under these keys of the fleet from now on.
    pub(crate) fn accept(&self, keys: KnownKeys) {
        *self.keys.lock().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    /// Signs with another key from now on.
    pub(crate) fn sign_with(&self, identity: Identity) {
        *self.identity.lock().unwrap_or_else(PoisonError::into_inner) = identity;
    }

    /// The heads in such a file, from the oldest to the newest.
    pub fn read(path: &Path) -> Result<Vec<Witness>, FleetError> {
        Ok(read_json(path)?.unwrap_or_default())
    }

    /// Countersigns a head once it is remembered, unless the log it belongs to cannot be the one that was seen before.
    pub(crate) fn see(&self, head: SignedHead) -> Countersignature {
        let _one_at_a_time = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        let (signer, keys) = (head.seal.pin(), *self.keys.lock().unwrap_or_else(PoisonError::into_inner));
        // auth: head-signature, head-signer
        if !head.is_signed_by(signer) || !keys.accepts_coordinator(signer, self.clock.unix_seconds()) {
            return Err("this head is not signed by its coordinator".to_owned());
        }
        let mut heads = Witnesses::read(&self.path).map_err(|error| error.to_string())?;
        let identity = self.identity.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let witness = Witness::new(&identity, head).map_err(|error| error.to_string())?;
        if let Some(Witness { seen, .. }) = heads.last() {
            let (before, now) = (seen.head.count, head.head.count);
            if now < before {
                return Err(format!("the log has {now} records, and had {before}; look with `cascadia audit verify`"));
            }
            if now == before && head.head.hash != seen.head.hash {
                return Err(format!("the log had other {now} records; look with `cascadia audit verify`"));
            }
            if now == before {
                return Ok(witness);
            }
        }
        heads.push(witness);
        if heads.len() > MOST_HEADS {
            let mut index = 0;
            heads.retain(|_| {
                index += 1;
                index > MOST_HEADS / 2 || index % 2 == 1
            });
        }
        write_json(&self.path, &heads).map_err(|error| error.to_string())?;
        Ok(witness)
    }
}
