//! Encrypts records, and tells whether they are what was written.

use std::sync::atomic::{AtomicU64, Ordering};

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use zeroize::Zeroizing;

use super::record::RecordId;

/// How every record begins.
pub(super) const MAGIC: [u8; 8] = *b"CASCKV01";
const SESSION_BYTES: usize = 16;
const HEADER_BYTES: usize = MAGIC.len() + SESSION_BYTES + 8 + 8;

/// What records are encrypted with and named by. It is overwritten when it is dropped.
pub struct Secret(pub(super) Zeroizing<[u8; 32]>);

/// Seals and opens records under one secret.
pub(super) struct Cipher {
    secret: Secret,
    /// Tells the records of this process from those that others sealed with the same secret: each has a key of its own.
    session: [u8; SESSION_BYTES],
    /// Records sealed so far. Each has its number as nonce, so none is used twice.
    sealed: AtomicU64,
}

impl Secret {
    /// One that nobody knows; nothing where the system has no random numbers.
    pub fn random() -> Option<Secret> {
        let mut bytes = Zeroizing::new([0; 32]);
        SystemRandom::new().fill(bytes.as_mut()).ok()?;
        Some(Secret(bytes))
    }

    /// A key for one purpose, written where it is overwritten again.
    pub(super) fn derive(&self, purpose: &str) -> Zeroizing<[u8; 32]> {
        let mut key = Zeroizing::new([0; 32]);
        blake3::Hasher::new_derive_key(purpose).update(self.0.as_ref()).finalize_xof().fill(key.as_mut());
        key
    }
}

impl Cipher {
    /// Nothing is sealed yet; nothing where the system has no random numbers.
    pub(super) fn new(secret: Secret) -> Option<Cipher> {
        let mut session = [0; SESSION_BYTES];
        SystemRandom::new().fill(&mut session).ok()?;
        Some(Cipher { secret, session, sealed: AtomicU64::new(0) })
    }

    /// The bytes of a file that holds `plain`.
    pub(super) fn seal(&self, id: &RecordId, plain: &[u8]) -> Option<Vec<u8>> {
        let number = self.sealed.fetch_add(1, Ordering::Relaxed);
        let mut bytes = Vec::with_capacity(sealed_bytes(plain.len()));
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&self.session);
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&(plain.len() as u64).to_le_bytes());
        let associated = associated(&bytes, id);
        bytes.extend_from_slice(plain);
        let key = self.key(&self.session)?;
        let body = &mut bytes[HEADER_BYTES..];
        let tag = key.seal_in_place_separate_tag(nonce(number), Aad::from(associated), body).ok()?;
        bytes.extend_from_slice(tag.as_ref());
        Some(bytes)
    }

    /// What a file holds; nothing unless it is byte for byte what was sealed for this record.
    pub(super) fn open(&self, id: &RecordId, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
        let (header, _) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let associated = associated(header, id);
        let rest = header.strip_prefix(&MAGIC)?;
        let (session, rest) = rest.split_first_chunk::<SESSION_BYTES>()?;
        let (number, length) = rest.split_first_chunk::<8>()?;
        let length = usize::try_from(u64::from_le_bytes(length.try_into().ok()?)).ok()?;
        let (key, nonce) = (self.key(session)?, nonce(u64::from_le_bytes(*number)));
        let plain = key.open_within(nonce, Aad::from(associated), &mut bytes, HEADER_BYTES..).ok()?;
        let opened = plain.len();
        bytes.truncate(opened);
        (opened == length).then_some(bytes)
    }

    /// The key of a session. What the library copies of it lives as long as this call's result, and is not overwritten: it
    /// opens records, which are gone with the process or lie beside the secret.
    fn key(&self, session: &[u8; SESSION_BYTES]) -> Option<LessSafeKey> {
        let mut key = self.secret.derive("cascadia spill records");
        let mut keyed = blake3::Hasher::new_keyed(&key);
        keyed.update(session).finalize_xof().fill(key.as_mut());
        UnboundKey::new(&CHACHA20_POLY1305, key.as_ref()).ok().map(LessSafeKey::new)
    }
}

/// Bytes of the file of a record of so many.
pub(super) fn sealed_bytes(plain: usize) -> usize {
    HEADER_BYTES + plain + CHACHA20_POLY1305.tag_len()
}

/// What is not encrypted, and must be as it was.
fn associated(header: &[u8], id: &RecordId) -> Vec<u8> {
    [header, &id.name, &[id.class as u8]].concat()
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

#[cfg(test)]
mod tests {
    use cascadia_model::PageClass;

    use super::*;

    fn cipher(secret: u8) -> Cipher {
        Cipher::new(Secret(Zeroizing::new([secret; 32]))).unwrap()
    }

    #[test]
    fn a_record_opens_only_as_it_was_sealed() {
        let cipher = cipher(1);
        let id = RecordId { name: [7; 32], class: PageClass::Full };
        let plain: Vec<u8> = (0..100).collect();
        let sealed = cipher.seal(&id, &plain).unwrap();
        assert_eq!(sealed.len(), sealed_bytes(100));
        assert!(!sealed.windows(8).any(|part| plain.windows(8).any(|piece| piece == part)), "it is not readable");
        assert_eq!(cipher.open(&id, sealed.clone()), Some(plain.clone()));
        for at in 0..sealed.len() {
            for bit in 0..8 {
                let mut flipped = sealed.clone();
                flipped[at] ^= 1 << bit;
                assert_eq!(cipher.open(&id, flipped), None, "bit {bit} of byte {at}");
            }
            assert_eq!(cipher.open(&id, sealed[..at].to_vec()), None, "only {at} bytes");
        }
        assert_eq!(cipher.open(&id, [sealed.clone(), vec![0]].concat()), None);
        let others = [RecordId { name: [8; 32], ..id }, RecordId { class: PageClass::Window, ..id }];
        others.iter().for_each(|other| assert_eq!(cipher.open(other, sealed.clone()), None));
        assert_eq!(self::cipher(2).open(&id, sealed.clone()), None, "another secret");
        assert_eq!(self::cipher(1).open(&id, sealed), Some(plain), "another session");
    }

    #[test]
    fn keys_are_those_that_are_written_down() {
        let secret = Secret(Zeroizing::new([3; 32]));
        assert_eq!(*secret.derive("one"), blake3::derive_key("one", &[3; 32]));
        // The file of a record that an earlier version wrote opens with this key.
        let expected = blake3::keyed_hash(&secret.derive("cascadia spill records"), &[5; SESSION_BYTES]);
        let seal = |key: &[u8]| {
            let key = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key).unwrap());
            let mut body = [7; 16];
            let tag = key.seal_in_place_separate_tag(nonce(1), Aad::from(b""), &mut body).unwrap();
            (body, tag.as_ref().to_vec())
        };
        let cipher = cipher(3);
        let mut body = [7; 16];
        let key = cipher.key(&[5; SESSION_BYTES]).unwrap();
        let tag = key.seal_in_place_separate_tag(nonce(1), Aad::from(b""), &mut body).unwrap();
        assert_eq!((body, tag.as_ref().to_vec()), seal(expected.as_bytes()));
    }

    #[test]
    fn nothing_is_sealed_twice_alike() {
        let id = RecordId { name: [7; 32], class: PageClass::Full };
        let ciphers = [cipher(1), cipher(1)];
        let mut seen = std::collections::BTreeSet::new();
        for cipher in &ciphers {
            for _ in 0..50 {
                let sealed = cipher.seal(&id, &[0; 64]).unwrap();
                assert!(seen.insert(sealed[8..32].to_vec()), "session and number");
                assert!(seen.insert(sealed[HEADER_BYTES..].to_vec()), "what is encrypted");
            }
        }
    }
}
