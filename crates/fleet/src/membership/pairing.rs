//! A machine joins with a pairing code: both ends prove the code to each other before either of them says anything else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::approval::code as agreed_code;
use super::key_exchange::{Connection, End, KeyExchange, PROOF_BYTES, START_BYTES};
use super::listener::{JOINING, JoinedFleet, JoinedMessage};
use super::member::Standing;
use super::pairings::{PairRefusal, PairedMachine, PairingTry, Pairings};
use crate::wire::frame::{Bounds, Frame, Kind, Outgoing, Wait, receive};
use crate::wire::link::{Link, LinkError};
use crate::wire::message::{MOST_MESSAGE, Writer, reason, refuse};
use crate::wire::tcp::{HANDSHAKE, TcpLink};
use crate::wire::tls::{MaySpeak, Purpose};
use crate::wire::verbs::Expecting;
use crate::{Clock, FleetError, Members, PairingCode, PendingIdentity};

/// Bytes of a refusal.
const REFUSAL_BYTES: usize = 8;

/// What a machine learns when it joins with a code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairedFleet {
    /// Its name and the keys of the fleet.
    pub fleet: JoinedFleet,
    /// What the coordinator shows too, unless somebody is between.
    pub agreed: String,
}

/// The coordinator's end, with one machine.
pub(crate) struct CoordinatorEnd<'a> {
    pub(crate) pairings: &'a Pairings,
    pub(crate) members: &'a Members,
    pub(crate) at: Connection<'a>,
    /// Where the machine is.
    pub(crate) address: String,
    /// When all of it is over.
    pub(crate) deadline: Instant,
}

impl CoordinatorEnd<'_> {
    /// Makes the machine a member if it proves the code; the error says why it did not.
    pub(crate) fn admit(&self, link: &mut dyn Link) -> Result<PairedMachine, String> {
        let said = |error: LinkError| error.to_string();
        let mut frame = Frame::default();
        self.hear(link, (Expecting::PairStart, START_BYTES), &mut frame).map_err(said)?;
        let is_member = matches!(self.members.standing(self.at.joiner), Standing::Member(_));
        let asked = self.pairings.asked(&self.address, is_member);
        let code = asked.map_err(|refusal| turn_away(link, refusal))?;
        let (exchange, start) = KeyExchange::begin(End::Coordinator, &code, self.at);
        let shared = exchange.finish(frame.table(), self.at).map_err(said)?;
        send(link, Kind::PairStart, &start).map_err(said)?;
        // Whoever hears only this has nothing to try codes on: the machine that joins shows its proof first.
        self.hear(link, (Expecting::PairProof, PROOF_BYTES), &mut frame).map_err(said)?;
        let is_right = shared.is_proof(End::Joiner, frame.table());
        let tried = PairingTry { code: &code, address: self.address.clone(), is_right, is_member };
        self.pairings.decide(&tried).map_err(|refusal| turn_away(link, refusal))?;
        send(link, Kind::PairProof, &shared.proof(End::Coordinator)).map_err(said)?;
        self.hear(link, (Expecting::Name, MOST_MESSAGE as usize), &mut frame).map_err(said)?;
        let wanted = reason(frame.table()).map_err(said)?;
        let agreed = agreed_code(self.at.session, self.at.coordinator, self.at.joiner);
        let note = format!("with a pairing code; both machines show {agreed}");
        let admitted = self.members.admit(&wanted, self.at.joiner, note).map_err(|error| error.to_string())?;
        let Some(node) = admitted else {
            let problem = "it is excluded from this fleet, its key is too old, or the fleet is full; look with `cascadia \
                fleet status` on the coordinator";
            refuse(link, problem.to_owned());
            return Err(problem.to_owned());
        };
        let machine = PairedMachine { node, agreed };
        self.pairings.joined(machine.clone()).map_err(|error| error.to_string())?;
        Ok(machine)
    }

    fn hear(
        &self,
        link: &mut dyn Link,
        (hearing, bytes): (Expecting, usize),
        frame: &mut Frame,
    ) -> Result<(), LinkError> {
        let wait = Wait::Until { end: self.deadline, silence: HANDSHAKE };
        receive(link, &Bounds::table(hearing, bytes as u32), frame, wait)
    }
}

/// Tells a machine that has proved nothing why it is not listened to; gives what people here read.
fn turn_away(link: &mut dyn Link, refusal: PairRefusal) -> String {
    // If it hears nothing, it finds the connection closed.
    let _ = send(link, Kind::PairRefused, &refusal.bytes());
    refusal.to_string()
}

fn send(link: &mut dyn Link, kind: Kind, message: &[u8]) -> Result<(), LinkError> {
    Outgoing::message(kind, message).send(link, &mut Vec::new()).map(|_| ())
}

/// Joins the fleet of the coordinator at one of these addresses, if that knows the code. This machine's key is kept once
/// it does, and before it takes the machine in: who joins again is then the same machine.
pub fn pair(
    addresses: &[String],
    code: &PairingCode,
    key: &PendingIdentity,
    wanted: &str,
) -> Result<PairedFleet, FleetError> {
    // Whoever answers is told nothing before it has proved the code.
    let anyone: MaySpeak = Arc::new(|_| true);
    let dialled = TcpLink::dial_for(Purpose::Pair, addresses, (key.identity(), anyone));
    let mut link = dialled.map_err(|error| {
        FleetError::pairing(format!(
            "the coordinator cannot be reached: {error}; is `cascadia fleet init` running there?"
        ))
    })?;
    let failed = |error: LinkError| FleetError::pairing(error.to_string());
    let (session, peer) = (link.secret().map_err(failed)?, link.peer());
    let coordinator = peer.ok_or_else(|| failed(LinkError::UnknownKey))?;
    let at = Connection { session: &session, coordinator, joiner: key.identity().pin() };
    join_with(&mut link, code, at, (key, wanted))
}

/// The other end.
pub(crate) fn join_with(
    link: &mut dyn Link,
    code: &PairingCode,
    at: Connection<'_>,
    (key, wanted): (&PendingIdentity, &str),
) -> Result<PairedFleet, FleetError> {
    let failed =
        |error: LinkError| FleetError::pairing(format!("the coordinator did not answer as it should: {error}"));
    let mut frame = Frame::default();
    let (exchange, start) = KeyExchange::begin(End::Joiner, code, at);
    let sent = send(link, Kind::PairStart, &start);
    let heard = sent.and_then(|()| hear(link, (Expecting::PairAnswer, START_BYTES.max(REFUSAL_BYTES)), &mut frame));
    heard.map_err(|error| match error {
        // A coordinator that takes in nobody hangs up before it hears anything.
        LinkError::HungUp | LinkError::Closed => refused(PairRefusal::NotShown),
        error => failed(error),
    })?;
    let shared = exchange.finish(answer(&frame, Kind::PairStart)?, at).map_err(failed)?;
    send(link, Kind::PairProof, &shared.proof(End::Joiner)).map_err(failed)?;
    hear(link, (Expecting::PairConfirmation, PROOF_BYTES), &mut frame).map_err(failed)?;
    if !shared.is_proof(End::Coordinator, answer(&frame, Kind::PairProof)?) {
        return Err(FleetError::pairing(
            "whoever answers for the coordinator does not know its code: another machine may pretend to be it. Nothing was \
            told to that machine",
        ));
    }
    key.keep()?;
    send(link, Kind::Join, &Writer::default().text(wanted).0).map_err(failed)?;
    receive(link, &Bounds::table(Expecting::Welcome, MOST_MESSAGE), &mut frame, Wait::For(JOINING)).map_err(failed)?;
    match frame.header.kind {
        Kind::Joined => {
            let joined = JoinedMessage::parse(frame.table()).map_err(failed)?;
            let fleet = joined.learned(at.coordinator, Clock::system().unix_seconds()).map_err(FleetError::pairing)?;
            Ok(PairedFleet { fleet, agreed: agreed_code(at.session, at.coordinator, at.joiner) })
        }
        Kind::Refused => {
            Err(FleetError::pairing(format!("the coordinator says: {}", reason(frame.table()).map_err(failed)?)))
        }
        kind => Err(FleetError::pairing(format!("the coordinator answered {kind:?}"))),
    }
}

/// How long an answer may take: the coordinator writes down what becomes of its code.
const PATIENCE: Duration = JOINING;

fn hear(link: &mut dyn Link, (hearing, bytes): (Expecting, usize), frame: &mut Frame) -> Result<(), LinkError> {
    receive(link, &Bounds::table(hearing, bytes as u32), frame, Wait::For(PATIENCE))
}

/// What a frame says, or why it is another one than was awaited.
fn answer(frame: &Frame, awaited: Kind) -> Result<&[u8], FleetError> {
    if frame.header.kind == awaited {
        return Ok(frame.table());
    }
    let refusal = PairRefusal::parse(frame.table());
    Err(refusal.map_or_else(|error| FleetError::pairing(error.to_string()), refused))
}

fn refused(refusal: PairRefusal) -> FleetError {
    let is_mistyped = matches!(refusal, PairRefusal::Wrong(_) | PairRefusal::Burned);
    FleetError::Pairing { problem: refusal.advice(), is_mistyped }
}
