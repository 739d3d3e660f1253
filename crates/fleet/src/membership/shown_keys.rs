//! What a coordinator shows of its fleet's keys when a member asks: all statements, and that it has the newest keys.

use std::time::Duration;

use super::key_statement::{KeyPair, SignedKeys};
use crate::audit::{SEAL_BYTES, Seal};
use crate::wire::frame::{Bounds, Frame, Kind, Outgoing, Wait, receive};
use crate::wire::link::{Link, LinkError};
use crate::wire::message::{Reader, Writer, broken, reason};
use crate::wire::verbs::Expecting;
use crate::{Digest, FleetError};

/// The most statements that are kept and shown. Whoever has missed more of them has to join again.
pub(crate) const MOST_STATEMENTS: usize = 64;
/// The most bytes of what is shown.
const MOST_BYTES: usize = SEAL_BYTES + 4 + MOST_STATEMENTS * SignedKeys::BYTES;
/// What the signature is made for, so that it is of no use for anything else.
const PROOF: &[u8] = b"cascadia fleet keys, proof on a connection, version 1";
/// How long it may take to come.
const PATIENCE: Duration = Duration::from_secs(30);

/// The statements of a fleet, and a proof of its targets key for one connection.
///
/// The connection itself proves the coordinator's key. Whoever has only that, because it was stolen, proves nothing to a
/// machine that was away while the key was replaced.
pub(crate) struct ShownKeys {
    pub(crate) chain: Vec<SignedKeys>,
    proof: Seal,
}

impl ShownKeys {
    /// Shows them on a connection whose ends alone know `session`.
    pub(crate) fn new(chain: &[SignedKeys], keys: &KeyPair, session: &[u8; 32]) -> Result<ShownKeys, FleetError> {
        Ok(ShownKeys { chain: chain.to_vec(), proof: Seal::new(&keys.targets, &[PROOF, session].concat())? })
    }

    /// Whether whoever has this targets key shows them on this connection.
    pub(crate) fn is_proved_by(&self, targets: Digest, session: &[u8; 32]) -> bool {
        self.proof.pin() == targets && self.proof.holds(&[PROOF, session].concat())
    }

    /// Sends them.
    pub(crate) fn send(&self, link: &mut dyn Link) -> Result<(), LinkError> {
        Outgoing::message(Kind::Keys, &self.bytes()).send(link, &mut Vec::new()).map(|_| ())
    }

    /// Waits for them. Who sends them has proved nothing yet.
    pub(crate) fn receive(link: &mut dyn Link) -> Result<ShownKeys, LinkError> {
        let mut frame = Frame::default();
        receive(link, &Bounds::table(Expecting::Keys, MOST_BYTES as u32), &mut frame, Wait::For(PATIENCE))?;
        match frame.header.kind {
            Kind::Refused => Err(LinkError::Broken(reason(frame.table())?)),
            _ => ShownKeys::parse(frame.table()),
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let writer = Writer::default().bytes(&self.proof.0).number(self.chain.len() as u32);
        self.chain.iter().fold(writer, |writer, keys| keys.write(writer)).0
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<ShownKeys, LinkError> {
        let mut reader = Reader(bytes);
        let (proof, count) = (Seal(reader.array()?), reader.number()? as usize);
        if count > MOST_STATEMENTS {
            return Err(broken());
        }
        let chain = (0..count).map(|_| SignedKeys::read(&mut reader)).collect::<Result<_, _>>()?;
        reader.end()?;
        Ok(ShownKeys { chain, proof })
    }
}
