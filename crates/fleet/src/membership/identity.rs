//! Who a machine is: an Ed25519 key that never leaves it.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ring::pkcs8;
use ring::rand::SystemRandom;
use ring::signature::Ed25519KeyPair;
use rustls::SignatureScheme;
use rustls::crypto::ring::sign::any_eddsa_type;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

use crate::json_file::sync_folder;
use crate::{Digest, FleetError};

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
    new: Option<(PathBuf, pkcs8::Document)>,
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
        file.write_all(bytes.as_ref())
            .and_then(|()| file.as_file().sync_all())
            .map_err(FleetError::io("write", path))?;
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
        match fs::read(path) {
            Ok(bytes) => {
                let identity = Identity::from_bytes(&bytes).map_err(|problem| FleetError::file(path, problem))?;
                Ok(identity.into())
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let bytes = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new());
                let bytes =
                    bytes.map_err(|_| FleetError::file(path, "the system gives no random numbers for a key"))?;
                let identity = Identity::from_bytes(bytes.as_ref());
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

    pub(crate) fn key(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.key)
    }
}
