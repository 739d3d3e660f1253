//! A signature together with the key that made it.

use ring::signature::{ED25519, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use crate::shards::digest::{from_hex, hex};
use crate::{Digest, FleetError, Identity};

/// What stands before the 32 bytes of an Ed25519 key where keys say of which kind they are (RFC 8410).
const KEY_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// Bytes of a key and of a signature.
pub(crate) const SEAL_BYTES: usize = 32 + 64;

/// An Ed25519 key, and its signature of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Seal(pub(crate) [u8; SEAL_BYTES]);

impl Seal {
    /// Signs a message with a machine's key.
    pub(crate) fn new(identity: &Identity, message: &[u8]) -> Result<Seal, FleetError> {
        let (key, signature) = identity.sign(message)?;
        let mut bytes = [0; SEAL_BYTES];
        let parts = key.strip_prefix(&KEY_PREFIX).filter(|key| key.len() == 32).zip(Some(signature));
        let (key, signature) = parts.filter(|(_, signature)| signature.len() == 64).ok_or_else(Identity::unusable)?;
        bytes[..32].copy_from_slice(key);
        bytes[32..].copy_from_slice(&signature);
        Ok(Seal(bytes))
    }

    /// Who signed.
    pub fn pin(&self) -> Digest {
        Digest::of(&[&KEY_PREFIX[..], &self.0[..32]].concat())
    }

    /// Whether that machine signed this message.
    pub(crate) fn holds(&self, message: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0[..32]).verify(message, &self.0[32..]).is_ok()
    }
}

impl From<Seal> for String {
    fn from(seal: Seal) -> String {
        hex(&seal.0)
    }
}

impl TryFrom<String> for Seal {
    type Error = String;

    fn try_from(text: String) -> Result<Seal, String> {
        from_hex(&text).map(Seal).ok_or_else(|| format!("`{text}` is no signature"))
    }
}
