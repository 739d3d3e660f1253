//! What shards are offered under: a list of all shards of a model, signed with the fleet's targets key for one push.

use serde::{Deserialize, Serialize};

use crate::audit::{SEAL_BYTES, Seal};
use crate::wire::link::LinkError;
use crate::wire::message::{Reader, Writer};
use crate::{Digest, FleetError, Identity, KnownKeys, Manifest};

/// What the signature is made for, so that it is of no use for anything else.
const MANIFEST: &[u8] = b"cascadia fleet manifest of a push, version 1";
/// The most shards of a model.
const MOST_SHARDS: u32 = 1024;

/// The shards of a model, and the signature of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedManifest {
    /// Which push this is; later ones have larger numbers.
    version: u64,
    /// All shards of the model; their digests make the model's.
    shards: Vec<Digest>,
    /// The signature of both.
    seal: Seal,
}

/// What a worker knows of the pushes of its fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownTargets {
    /// The digest of the key that signs them.
    pub key: Digest,
    /// The newest push of which a shard was taken.
    pub version: u64,
}

impl SignedManifest {
    /// Signs the push of a model with the fleet's targets key.
    pub fn new(manifest: &Manifest, version: u64, targets: &Identity) -> Result<SignedManifest, FleetError> {
        let shards = std::iter::once(&manifest.token_io).chain(&manifest.stages).map(|shard| shard.digest).collect();
        SignedManifest::of(shards, version, targets)
    }

    pub(crate) fn of(shards: Vec<Digest>, version: u64, targets: &Identity) -> Result<SignedManifest, FleetError> {
        let seal = Seal::new(targets, &message(version, &shards))?;
        Ok(SignedManifest { version, shards, seal })
    }

    /// What a worker knows after it has taken this shard at a time in seconds since 1970; an error if it may not take it.
    pub(crate) fn check(&self, shard: Digest, keys: &KnownKeys, now: u64) -> Result<KnownTargets, String> {
        let (key, known) = (self.seal.pin(), keys.targets);
        keys.check_targets_expiry(now)?;
        // auth: manifest-signature, manifest-key
        if !self.seal.holds(&message(self.version, &self.shards)) || !keys.accepts_targets(key, now) {
            let remedy = "push from its coordinator, or let this machine leave and join again";
            return Err(format!("the model is not signed with the targets key of this machine's fleet; {remedy}"));
        }
        // auth: manifest-version
        if let Some(KnownTargets { version, .. }) = known.filter(|known| self.version < known.version) {
            let old = self.version;
            return Err(format!(
                "push {old} is older than {version}, which this machine has seen; push the model again"
            ));
        }
        // auth: manifest-shard
        match self.shards.contains(&shard) {
            // One that is signed with the key before does not make it the newest again.
            true => Ok(KnownTargets { key: known.map_or(key, |known| known.key), version: self.version }),
            false => Err(format!("shard {} is none of the model that was signed; export it again", shard.short())),
        }
    }

    pub(crate) fn write(&self, writer: Writer) -> Writer {
        let writer = writer.bytes(&self.version.to_le_bytes()).bytes(&self.seal.0).number(self.shards.len() as u32);
        self.shards.iter().fold(writer, |writer, shard| writer.bytes(&shard.0))
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<SignedManifest, LinkError> {
        let (version, seal) = (u64::from_le_bytes(reader.array()?), Seal(reader.array::<SEAL_BYTES>()?));
        let count = reader.number()?.min(MOST_SHARDS);
        let shards = (0..count).map(|_| Ok(Digest(reader.array()?))).collect::<Result<_, LinkError>>()?;
        Ok(SignedManifest { version, shards, seal })
    }
}

fn message(version: u64, shards: &[Digest]) -> Vec<u8> {
    [MANIFEST, &version.to_le_bytes(), &Manifest::digest_of(shards).0].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_fleet_signed_is_taken_and_no_older_push() {
        let folder = tempfile::tempdir().expect("a folder");
        let key = |name: &str| Identity::open_or_make(&folder.path().join(name)).expect("a key");
        let (targets, other) = (key("targets"), key("other"));
        let shards: Vec<Digest> = [b"ends", b"one.", b"two."].map(|shard| Digest::of(shard)).to_vec();
        let signed = |version: u64, key: &Identity| SignedManifest::of(shards.clone(), version, key).expect("it signs");
        let known = |version: u64| Some(KnownTargets { key: targets.pin(), version });
        let right = signed(7, &targets);
        let check =
            |what: &str, signed: &SignedManifest, targets_known: Option<KnownTargets>, problem: Option<&str>| {
                let keys = KnownKeys { targets: targets_known, ..KnownKeys::invited(other.pin()) };
                // As a worker hears it.
                let bytes = signed.write(Writer::default()).0;
                let heard = SignedManifest::read(&mut Reader(&bytes)).expect("it can be read");
                assert_eq!(&heard, signed, "{what}");
                match (heard.check(shards[1], &keys, 0), problem) {
                    (Ok(after), None) => assert_eq!(after, KnownTargets { key: targets.pin(), version: 7 }, "{what}"),
                    (Err(error), Some(problem)) => assert!(error.contains(problem), "{what}: {error}"),
                    (checked, _) => panic!("{what}: {checked:?}"),
                }
            };
        check("a machine that joined an older fleet keeps the key that it sees", &right, None, None);
        check("a later push", &right, known(6), None);
        check("another shard of the same push", &right, known(7), None);
        check("an older push", &right, known(8), Some("older than 8"));
        check("another key", &signed(7, &other), known(1), Some("not signed"));
        let forged = SignedManifest { version: 9, ..right.clone() };
        check("another version", &forged, known(8), Some("not signed"));
        let swapped = SignedManifest { shards: shards.iter().rev().copied().collect(), ..right.clone() };
        check("other shards", &swapped, known(1), Some("not signed"));
        check("an unsigned one", &SignedManifest { seal: Seal([0; SEAL_BYTES]), ..right }, None, Some("not signed"));
        let of_another = SignedManifest::of(vec![shards[0]], 7, &targets).expect("it signs");
        check("a shard that is not in it", &of_another, known(1), Some("is none of the model"));
    }
}
