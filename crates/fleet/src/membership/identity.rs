//! Who a machine is: an Ed25519 key that never leaves it.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ring::rand::{SecureRandom, SystemRandom};
use rustls::SignatureScheme;
use rustls::crypto::ring::sign::any_eddsa_type;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use zeroize::Zeroizing;

use crate::json_file::sync_folder;
use crate::{Digest, FleetError};

/// What stands before the 32 bytes of a private Ed25519 key in a file (RFC 8410).
const PRIVATE_PREFIX: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// A private key as it is in a file; wiped when it is dropped.
type KeyBytes = Zeroizing<[u8; PRIVATE_PREFIX.len() + 32]>;

/// The key of this machine.
#[derive(Clone)]
pub struct Identity {
    key: Arc<CertifiedKey>,
    pin: Digest,
}

/// A key that is to become this machine's: nothing is written before it is kept.
pub struct PendingIdentity {
    identity: Identity,
    /// Where it goes if it is new, and its bytes.
    new: Option<(PathBuf, KeyBytes)>,
}

impl PendingIdentity {
    /// The key.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Writes it into its file, which only its owner can read, unless it comes from there.
    pub fn keep(&self) -> Result<(), FleetError> {
        let Some((path, bytes)) = &self.new else { return Ok(()) };
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(FleetError::io("make the folder", folder))?;
        // Such files are their owner's alone from the beginning.
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(FleetError::io("create a file in", folder))?;
        file.write_all(&bytes[..]).and_then(|()| file.as_file().sync_all()).map_err(FleetError::io("write", path))?;
        file.persist_noclobber(path).map_err(|error| FleetError::io("write", path)(error.error))?;
        sync_folder(folder);
        Ok(())
    }
}

impl From<Identity> for PendingIdentity {
    /// One that is kept already.
    fn from(identity: Identity) -> PendingIdentity {
        PendingIdentity { identity, new: None }
    }
}

impl Identity {
    /// Reads the key in a file, which is made if it is not there. Only its owner can read the file.
    pub fn open_or_make(path: &Path) -> Result<Identity, FleetError> {
        let pending = Identity::prepare(path)?;
        pending.keep()?;
        Ok(pending.identity)
    }

    /// The key in a file, or a new one for it that is not written yet.
    pub fn prepare(path: &Path) -> Result<PendingIdentity, FleetError> {
        match fs::read(path).map(Zeroizing::new) {
            Ok(bytes) => {
                let identity = Identity::from_bytes(&bytes).map_err(|problem| FleetError::file(path, problem))?;
                Ok(identity.into())
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let bytes = random_key();
                let bytes =
                    bytes.ok_or_else(|| FleetError::file(path, "the system gives no random numbers for a key"))?;
                let identity = Identity::from_bytes(&bytes[..]);
                let identity = identity.map_err(|problem| FleetError::file(path, problem))?;
                Ok(PendingIdentity { identity, new: Some((path.to_owned(), bytes)) })
            }
            Err(error) => Err(FleetError::io("read", path)(error)),
        }
    }

    fn from_bytes(bytes: &[u8]) -> Result<Identity, String> {
        let unusable = "it holds no Ed25519 key; remove it and pair this machine again";
        let key = any_eddsa_type(&PrivatePkcs8KeyDer::from(bytes)).map_err(|_| unusable.to_owned())?;
        let public = key.public_key().ok_or_else(|| unusable.to_owned())?.to_vec();
        let pin = Digest::of(&public);
        Ok(Identity { key: Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], key)), pin })
    }

    /// Lets the key that lies beside a file take its place there.
    pub(crate) fn replace(path: &Path) -> Result<(), FleetError> {
        fs::rename(next_to(path), path).map_err(FleetError::io("replace", path))?;
        sync_folder(path.parent().unwrap_or(Path::new(".")));
        Ok(())
    }

    /// The key that will take the place of the one in a file, which is made if it is not there.
    pub(crate) fn next(path: &Path) -> Result<Identity, FleetError> {
        Identity::open_or_make(&next_to(path))
    }

    /// The key of this digest, which is in a file or lies beside it to take its place, and then does so. An error if it is
    /// neither.
    pub(crate) fn settle(path: &Path, pin: Digest) -> Result<Identity, FleetError> {
        let find = |path: &Path| -> Result<Option<Identity>, FleetError> {
            Ok(Some(Identity::prepare(path)?.identity).filter(|found| found.pin == pin))
        };
        if let Some(found) = find(path)? {
            return Ok(found);
        }
        let replaced = match find(&next_to(path))? {
            Some(_) => Identity::replace(path),
            None => {
                Err(FleetError::file(path, "it is not the key that this fleet states; restore the folder as it was"))
            }
        };
        // Another process may have been faster.
        match find(path)? {
            Some(found) => Ok(found),
            None => Err(replaced.err().unwrap_or_else(Identity::unusable)),
        }
    }

    /// What others know it by: the digest of its public key.
    pub fn pin(&self) -> Digest {
        self.pin
    }

    /// The public key and its signature of a message.
    pub(crate) fn sign(&self, message: &[u8]) -> Result<(&[u8], Vec<u8>), FleetError> {
        let signer = self.key.key.choose_scheme(&[SignatureScheme::ED25519]);
        let signature = signer.and_then(|signer| signer.sign(message).ok());
        let key = self.key.cert.first().map(|key| key.as_ref());
        key.zip(signature).ok_or_else(Identity::unusable)
    }

    /// The error for a key that signs nothing.
    pub(crate) fn unusable() -> FleetError {
        FleetError::file(Path::new("the key of this machine"), "it cannot sign; remove it and pair this machine again")
    }

    /// One that shows the key of another machine, and signs with its own.
    #[cfg(test)]
    pub(crate) fn pretending_to_be(&self, other: &Identity) -> Identity {
        let key = CertifiedKey::new(other.key.cert.clone(), Arc::clone(&self.key.key));
        Identity { key: Arc::new(key), pin: other.pin }
    }

    pub(crate) fn key(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.key)
    }
}

/// Where the key is that will take the place of the one in a file.
fn next_to(path: &Path) -> PathBuf {
    path.with_extension("next")
}

/// A new private key; nothing if the system gives no random numbers.
fn random_key() -> Option<KeyBytes> {
    let mut bytes = KeyBytes::new([0; PRIVATE_PREFIX.len() + 32]);
    let (prefix, key) = bytes.split_at_mut(PRIVATE_PREFIX.len());
    prefix.copy_from_slice(&PRIVATE_PREFIX);
    SystemRandom::new().fill(key).ok()?;
    Some(bytes)
}
