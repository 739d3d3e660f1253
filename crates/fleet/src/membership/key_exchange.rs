//! How two machines that know one pairing code find out so, and nobody else: SPAKE2, with the keys of the TLS connection
//! as the names of its ends.
//!
//! Whoever is between two machines has a connection with each, and so other keys or another session: the key that comes
//! out is another one on both sides, and what is seen of it tells whether one guess of the code was right, not more.

use ring::hmac;
use spake2::{Ed25519Group, Identity, Password, Spake2};
use zeroize::Zeroizing;

use crate::wire::link::LinkError;
use crate::wire::message::broken;
use crate::{Digest, PairingCode};

/// Bytes of the first message of either end.
pub(crate) const START_BYTES: usize = 33;
/// Bytes of the second.
pub(crate) const PROOF_BYTES: usize = 32;

/// Which end of the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The machine that wants to join.
    Joiner,
    /// The coordinator.
    Coordinator,
}

impl End {
    /// Names this end of an exchange between the keys of a connection.
    fn identity(self, key: Digest) -> Identity {
        let name: &[u8] = match self {
            End::Joiner => b"cascadia fleet pairing, version 1, machine that joins ",
            End::Coordinator => b"cascadia fleet pairing, version 1, coordinator ",
        };
        Identity::new(&[name, &key.0].concat())
    }

    fn proof_context(self) -> &'static str {
        match self {
            End::Joiner => "cascadia fleet pairing, version 1, proof of the machine that joins",
            End::Coordinator => "cascadia fleet pairing, version 1, proof of the coordinator",
        }
    }
}

/// What a connection is known by at both its ends.
#[derive(Clone, Copy)]
pub(crate) struct Connection<'a> {
    /// What only they know.
    pub(crate) session: &'a [u8; 32],
    /// The key that the coordinator has proved there.
    pub(crate) coordinator: Digest,
    /// The key that the other machine has proved.
    pub(crate) joiner: Digest,
}

/// An exchange that has begun.
pub(crate) struct KeyExchange(Spake2<Ed25519Group>);

/// What both ends have in common if they know the same code; wiped when it is dropped.
pub(crate) struct SharedKey {
    key: Zeroizing<Vec<u8>>,
    session: Zeroizing<[u8; 32]>,
}

impl KeyExchange {
    /// Begins at one end; gives what the other end has to hear.
    pub(crate) fn begin(end: End, code: &PairingCode, at: Connection<'_>) -> (KeyExchange, Vec<u8>) {
        let password = Password::new(code.letters());
        // auth: pairing-joiner, pairing-coordinator
        let (joiner, coordinator) = (End::Joiner.identity(at.joiner), End::Coordinator.identity(at.coordinator));
        let (state, start) = match end {
            End::Joiner => Spake2::start_a(&password, &joiner, &coordinator),
            End::Coordinator => Spake2::start_b(&password, &joiner, &coordinator),
        };
        (KeyExchange(state), start)
    }

    /// Takes what the other end has said.
    pub(crate) fn finish(self, heard: &[u8], at: Connection<'_>) -> Result<SharedKey, LinkError> {
        let key = Zeroizing::new(self.0.finish(heard).map_err(|_| broken())?);
        Ok(SharedKey { key, session: Zeroizing::new(*at.session) })
    }
}

impl SharedKey {
    fn tag(&self, end: End) -> hmac::Key {
        let key = Zeroizing::new(blake3::derive_key(end.proof_context(), &self.key));
        hmac::Key::new(hmac::HMAC_SHA256, &key[..])
    }

    /// Shows that this end has it, on this connection.
    pub(crate) fn proof(&self, end: End) -> Vec<u8> {
        hmac::sign(&self.tag(end), &self.session[..]).as_ref().to_vec()
    }

    /// Whether the other end has shown so; takes the same time for every wrong proof.
    pub(crate) fn is_proof(&self, end: End, shown: &[u8]) -> bool {
        // auth: pairing-code, pairing-session, pairing-direction
        hmac::verify(&self.tag(end), &self.session[..], shown).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SESSION: [u8; 32] = [1; 32];

    fn keys() -> [Digest; 3] {
        [b"coordinator", b"nodenodenod", b"between-two"].map(|key| Digest::of(key))
    }

    fn code(text: &str) -> PairingCode {
        text.parse().expect("a code")
    }

    /// What each end finds, with what each of them goes by: whether it believes the other.
    fn exchange(codes: [&str; 2], joiner: Connection<'_>, coordinator: Connection<'_>) -> [bool; 2] {
        let (here, start) = KeyExchange::begin(End::Joiner, &code(codes[0]), joiner);
        let (there, answer) = KeyExchange::begin(End::Coordinator, &code(codes[1]), coordinator);
        assert_eq!((start.len(), answer.len()), (START_BYTES, START_BYTES));
        let here = here.finish(&answer, joiner).expect("a point");
        let there = there.finish(&start, coordinator).expect("a point");
        let [first, second] = [here.proof(End::Joiner), there.proof(End::Coordinator)];
        assert_eq!((first.len(), second.len()), (PROOF_BYTES, PROOF_BYTES));
        // A proof is of no use in the other direction.
        assert!(!here.is_proof(End::Coordinator, &first) && !there.is_proof(End::Joiner, &second));
        [here.is_proof(End::Coordinator, &second), there.is_proof(End::Joiner, &first)]
    }

    #[test]
    fn both_ends_agree_only_with_one_code_on_one_connection() {
        let [coordinator, joiner, other] = keys();
        let right = Connection { session: &SESSION, coordinator, joiner };
        let same = ["K7QF-3MXP", "k7qf3mxp"];
        assert_eq!(exchange(same, right, right), [true, true]);
        assert_eq!(exchange(["K7QF-3MXP", "K7QF-3MXQ"], right, right), [false, false]);
        let session = [2; 32];
        for wrong in [
            Connection { session: &session, ..right },
            Connection { coordinator: other, ..right },
            Connection { joiner: other, ..right },
            Connection { coordinator: joiner, joiner: coordinator, ..right },
        ] {
            assert_eq!(exchange(same, right, wrong), [false, false]);
            assert_eq!(exchange(same, wrong, right), [false, false]);
        }
    }

    #[test]
    fn an_end_that_is_told_its_own_words_believes_nobody() {
        let [coordinator, joiner, _] = keys();
        let at = Connection { session: &SESSION, coordinator, joiner };
        let (here, start) = KeyExchange::begin(End::Joiner, &code("K7QF-3MXP"), at);
        assert!(here.finish(&start, at).is_err());
    }

    proptest! {
        #[test]
        fn whatever_comes_is_refused_or_proves_nothing(start in prop::collection::vec(any::<u8>(), 0..80), proof: [u8; 32]) {
            let [coordinator, joiner, _] = keys();
            let at = Connection { session: &SESSION, coordinator, joiner };
            let (here, _) = KeyExchange::begin(End::Coordinator, &code("K7QF-3MXP"), at);
            if let Ok(shared) = here.finish(&start, at) {
                prop_assert!(!shared.is_proof(End::Joiner, &proof));
            }
        }

        #[test]
        fn any_point_proves_nothing_without_the_code(mut start: [u8; 33], proof: [u8; 32]) {
            let [coordinator, joiner, _] = keys();
            let at = Connection { session: &SESSION, coordinator, joiner };
            start[0] = b'A';
            let (here, _) = KeyExchange::begin(End::Coordinator, &code("K7QF-3MXP"), at);
            if let Ok(shared) = here.finish(&start, at) {
                prop_assert!(!shared.is_proof(End::Joiner, &proof));
            }
        }
    }
}
