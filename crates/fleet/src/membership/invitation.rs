//! The one line that lets a machine join: where the coordinator is, its key, and a secret that is used once.

use std::fmt;
use std::str::FromStr;

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use zeroize::Zeroizing;

use crate::wire::message::{Reader, Writer};
use crate::{Digest, FleetError};

/// How the line begins.
const PREFIX: &str = "cas1-";
/// The alphabet of base32 in small letters.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// Bytes of the checksum at its end, which catches slips of the pen.
const CHECK_BYTES: usize = 4;
/// The most addresses in a line.
const MOST_ADDRESSES: u32 = 16;

/// What a machine needs to join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invitation {
    /// Where the coordinator listens, each `host:port`.
    pub addresses: Vec<String>,
    /// Its key.
    pub coordinator: Digest,
    /// What proves that the machine was invited; wiped when it is dropped.
    pub secret: Zeroizing<[u8; 16]>,
    /// When it ends, in seconds since 1970.
    pub expires: u64,
}

impl Invitation {
    /// A new one with a secret of its own.
    pub fn new(addresses: Vec<String>, coordinator: Digest, expires: u64) -> Result<Invitation, FleetError> {
        let mut secret = Zeroizing::new([0; 16]);
        let filled = SystemRandom::new().fill(&mut secret[..]);
        filled.map_err(|_| FleetError::Invitation { problem: "the system gives no random numbers".to_owned() })?;
        Ok(Invitation { addresses, coordinator, secret, expires })
    }

    /// What the coordinator keeps of the secret: enough to recognise it, not to use it.
    pub fn proof_key(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(blake3::derive_key("cascadia fleet invitation, proof key", &self.secret[..]))
    }
}

/// What a machine proves its invitation with on one connection: it is of no use on any other.
pub(crate) fn proof(proof_key: &[u8; 32], session: &[u8; 32], node: Digest) -> [u8; 32] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, proof_key);
    let tag = hmac::sign(&key, &[&session[..], &node.0].concat());
    let mut proof = [0; 32];
    proof.copy_from_slice(tag.as_ref());
    proof
}

/// Whether a proof is right; takes the same time for every wrong one.
pub(crate) fn is_proof(proof_key: &[u8; 32], session: &[u8; 32], node: Digest, shown: &[u8; 32]) -> bool {
    let key = hmac::Key::new(hmac::HMAC_SHA256, proof_key);
    hmac::verify(&key, &[&session[..], &node.0].concat(), shown).is_ok()
}

impl fmt::Display for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut writer = Writer::default().bytes(&self.coordinator.0).bytes(&self.secret[..]);
        writer = writer.bytes(&self.expires.to_le_bytes()).number(self.addresses.len() as u32);
        let mut bytes = Zeroizing::new(self.addresses.iter().fold(writer, |writer, address| writer.text(address)).0);
        let check = Digest::of(&bytes);
        bytes.extend_from_slice(&check.0[..CHECK_BYTES]);
        write!(f, "{PREFIX}{}", base32(&bytes))
    }
}

impl FromStr for Invitation {
    type Err = FleetError;

    fn from_str(text: &str) -> Result<Invitation, FleetError> {
        let refuse = |problem: &str| FleetError::Invitation { problem: problem.to_owned() };
        let letters = text.trim().strip_prefix(PREFIX).ok_or_else(|| refuse("it does not begin with cas1-"))?;
        let bytes = from_base32(letters).map(Zeroizing::new);
        let bytes = bytes.ok_or_else(|| refuse("it holds letters that do not belong there"))?;
        let cut = bytes.len().checked_sub(CHECK_BYTES).ok_or_else(|| refuse("it is too short"))?;
        let (bytes, check) = bytes.split_at(cut);
        if Digest::of(bytes).0[..CHECK_BYTES] != *check {
            return Err(refuse("a part of it is missing or mistyped"));
        }
        Invitation::parse(bytes).ok_or_else(|| refuse("another version of the program made it"))
    }
}

impl Invitation {
    fn parse(bytes: &[u8]) -> Option<Invitation> {
        let mut reader = Reader(bytes);
        let (coordinator, secret) = (Digest(reader.array().ok()?), Zeroizing::new(reader.array().ok()?));
        let expires = u64::from_le_bytes(reader.array().ok()?);
        let count = reader.number().ok().filter(|count| *count <= MOST_ADDRESSES)?;
        let addresses = (0..count).map(|_| reader.text().ok()).collect::<Option<_>>()?;
        reader.end().ok()?;
        Some(Invitation { addresses, coordinator, secret, expires })
    }
}

pub(crate) fn base32(bytes: &[u8]) -> String {
    let digit = |at: usize| {
        let bit = |index: usize| bytes.get(index / 8).map_or(0, |byte| byte >> (7 - index % 8) & 1);
        char::from(ALPHABET[(5 * at..5 * at + 5).fold(0, |digit, index| digit << 1 | usize::from(bit(index)))])
    };
    (0..(8 * bytes.len()).div_ceil(5)).map(digit).collect()
}

fn from_base32(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut held, mut bits) = (Vec::new(), 0u32, 0);
    for letter in text.bytes() {
        let digit = ALPHABET.iter().position(|known| *known == letter.to_ascii_lowercase())?;
        held = (held << 5 | digit as u32) & 0xfff;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_wiped() {
        fn is_wiped<T: zeroize::ZeroizeOnDrop>(_: &T) {}
        let invitation = Invitation::new(Vec::new(), Digest::of(b"key"), 1).expect("random numbers");
        is_wiped(&invitation.secret);
        is_wiped(&invitation.proof_key());
    }

    #[test]
    fn a_line_says_what_was_written_and_slips_are_noticed() {
        let addresses = vec!["192.168.1.20:7420".to_owned(), "pc.example:7420".to_owned()];
        let invitation = Invitation::new(addresses, Digest::of(b"key"), 1_800_000_000).expect("random numbers");
        let line = invitation.to_string();
        assert_eq!(line.to_uppercase().replace("CAS1-", "cas1-").parse::<Invitation>().ok(), Some(invitation));
        for at in PREFIX.len()..line.len() {
            let mut slip = line.clone().into_bytes();
            slip[at] = if slip[at] == b'a' { b'b' } else { b'a' };
            let slip = String::from_utf8(slip).expect("letters");
            assert!(slip.parse::<Invitation>().is_err() || slip.len() == at + 1, "{slip}");
        }
        assert!(line[..line.len() - 3].parse::<Invitation>().is_err());
        assert!("cas1-".parse::<Invitation>().is_err() && "cas2-aaaa".parse::<Invitation>().is_err());
    }
}
