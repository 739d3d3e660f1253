//! The coordinator's one port: members are admitted, invited machines may join, nobody else gets an answer.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustls::ServerConfig;

use crate::audit::{Refusals, Verb};
use crate::membership::connection_slots::ConnectionSlots;
use crate::membership::discovery::{Announcement, announce};
use crate::membership::handshakes::{HandshakePlace, Handshakes};
use crate::membership::invitation::proof;
use crate::wire::frame::{Bounds, Frame, Kind, Outgoing, Wait, receive};
use crate::wire::link::LinkError;
use crate::wire::message::{MOST_MESSAGE, Reader, Writer, reason};
use crate::wire::tcp::HANDSHAKE;
use crate::wire::tls;
use crate::wire::verbs::Expecting;
use crate::{Clock, Digest, FleetError, Identity, Invitation, Members, PendingIdentity, TcpLink};

/// A pause when the system has no more connections to give.
const RETRY: Duration = Duration::from_millis(50);
/// How long a coordinator may take to answer a machine that wants to join: it writes down who joins first, and a disk
/// may take its time. Who gives up before that is a member and does not know it.
const JOINING: Duration = Duration::from_secs(30);

/// A port that members connect to.
pub struct Listener {
    socket: TcpListener,
    config: Arc<ServerConfig>,
    members: Arc<Members>,
    /// How machines of the local network find it, if they should.
    announcement: Option<Announcement>,
}

/// What the listener has to tell.
pub enum Arrival {
    /// A member has connected.
    Member {
        /// Its name.
        node: String,
        /// The connection.
        link: Box<TcpLink>,
    },
    /// A machine has joined.
    Joined {
        /// The name it was given.
        node: String,
    },
    /// Someone was turned away.
    TurnedAway {
        /// From where.
        address: SocketAddr,
        /// Why.
        problem: String,
        /// Whether it is the first from there in a minute; others are only counted.
        is_news: bool,
    },
}

impl Listener {
    /// Listens at an address with the coordinator's key.
    pub fn bind(address: &str, identity: &Identity, members: Arc<Members>) -> Result<Listener, FleetError> {
        let name = Path::new(address);
        let addresses: Vec<SocketAddr> = address.to_socket_addrs().map_err(FleetError::io("look up", name))?.collect();
        let socket = TcpListener::bind(&addresses[..]).map_err(FleetError::io("listen at", name))?;
        let asked = Arc::clone(&members);
        let may_speak = Arc::new(move |key: Digest| asked.name_of(key).is_some() || asked.invites());
        let config = tls::server(identity, may_speak).map_err(|error| FleetError::file(name, error.to_string()))?;
        Ok(Listener { socket, config, members, announcement: None })
    }

    /// Where it listens.
    pub fn address(&self) -> Result<SocketAddr, FleetError> {
        self.socket.local_addr().map_err(FleetError::io("ask for", Path::new("the port")))
    }

    /// Lets machines of the local network find it by the coordinator's key.
    pub fn announce(&mut self, identity: &Identity) -> Result<(), FleetError> {
        self.announcement = Some(announce(identity.pin(), self.address()?)?);
        Ok(())
    }

    /// Tells `arrive` of everyone who comes, each on a thread of its own, until the program ends.
    pub fn run(self, arrive: impl Fn(Arrival) + Send + Sync + 'static) {
        let Listener { socket, config, members, announcement } = self;
        let refusals = Mutex::new(Refusals::of(Verb::Connect));
        let reception = Arc::new(Reception { config, members, admitted: ConnectionSlots::default(), refusals, arrive });
        let handshakes = Handshakes::default();
        thread::spawn(move || {
            let _announcement = announcement;
            for socket in socket.incoming() {
                // A connection that failed before it began, or more at once than can be: both may come again.
                let Ok(socket) = socket else {
                    Clock::system().sleep(RETRY);
                    continue;
                };
                let (Ok(address), Ok(other)) = (socket.peer_addr(), socket.try_clone()) else { continue };
                let end = Box::new(move || drop(other.shutdown(Shutdown::Both)));
                let Some(place) = handshakes.take(address.ip(), Clock::system().now(), end) else { continue };
                let reception = Arc::clone(&reception);
                thread::spawn(move || reception.receive(socket, address, place));
            }
        });
    }
}

/// What every connection that may prove itself needs.
struct Reception<F> {
    config: Arc<ServerConfig>,
    members: Arc<Members>,
    admitted: ConnectionSlots,
    refusals: Mutex<Refusals>,
    arrive: F,
}

impl<F: Fn(Arrival)> Reception<F> {
    fn receive(&self, socket: TcpStream, address: SocketAddr, place: HandshakePlace) {
        let arrival = self.answer(socket).unwrap_or_else(|problem| {
            let is_news = self.is_news(address, &problem);
            Arrival::TurnedAway { address, problem, is_news }
        });
        let holder = match &arrival {
            Arrival::Member { node, .. } | Arrival::Joined { node } => {
                place.remember_member();
                node.clone()
            }
            Arrival::TurnedAway { address, .. } => address.ip().to_string(),
        };
        drop(place);
        // Members that find no slot come again.
        if let Some(_slot) = self.admitted.take(&holder) {
            (self.arrive)(arrival);
        }
    }

    /// Who it is, or why it is turned away.
    fn answer(&self, socket: TcpStream) -> Result<Arrival, String> {
        // So long in all, whatever is proved in that time.
        let deadline = Clock::system().now() + HANDSHAKE;
        let mut link = TcpLink::accept(socket, &self.config, deadline).map_err(|error| error.to_string())?;
        let key = link.peer().ok_or("it showed no key")?;
        if let Some(node) = self.members.name_of(key) {
            return Ok(Arrival::Member { node, link: Box::new(link) });
        }
        // It is told nothing: who was not invited learns nothing of who is.
        let joined = take_in(&mut link, key, (&self.members, deadline))?;
        let node = joined.ok_or("it was not invited, or its invitation is used up")?;
        Ok(Arrival::Joined { node })
    }

    /// Whether people should hear of it.
    fn is_news(&self, address: SocketAddr, problem: &str) -> bool {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Clock::system().now();
        drop(refusals.over(now));
        refusals.count(&address.ip().to_string(), problem, now).is_some()
    }
}

/// Takes in a machine that proves an invitation.
fn take_in(
    link: &mut TcpLink,
    key: Digest,
    (members, deadline): (&Members, Instant),
) -> Result<Option<String>, String> {
    let mut frame = Frame::default();
    let bounds = Bounds::table(Expecting::Proof, MOST_MESSAGE);
    let wait = Wait::Until { end: deadline, silence: HANDSHAKE };
    receive(link, &bounds, &mut frame, wait).map_err(|error| error.to_string())?;
    let mut reader = Reader(frame.table());
    let read = |reader: &mut Reader<'_>| Ok::<_, LinkError>((reader.text()?, reader.array()?));
    let (wanted, shown) = read(&mut reader).map_err(|error| error.to_string())?;
    let session = link.secret().map_err(|error| error.to_string())?;
    let joined = members.join(&wanted, key, (&session, &shown)).map_err(|error| error.to_string())?;
    if let Some(node) = &joined {
        let message = Writer::default().text(node).0;
        let sent = Outgoing::message(Kind::Joined, &message).send(link, &mut Vec::new());
        sent.map_err(|error| error.to_string())?;
    }
    Ok(joined)
}

/// Joins the fleet of an invitation with this machine's key; gives the name that it was given there. The key is kept
/// once the coordinator is reached, and before it takes the machine in: who joins again is then the same machine.
pub fn join(invitation: &Invitation, key: &PendingIdentity, wanted: &str) -> Result<String, FleetError> {
    let identity = key.identity();
    let refuse = |problem: String| FleetError::Invitation { problem };
    if Clock::system().unix_seconds() >= invitation.expires {
        return Err(refuse("it has expired; ask for a new one".to_owned()));
    }
    let failed = |error: LinkError| refuse(format!("{error}; is the coordinator waiting for machines to join?"));
    let mut link = TcpLink::dial(&invitation.addresses, identity, invitation.coordinator).map_err(failed)?;
    let proof = proof(&invitation.proof_key(), &link.secret().map_err(failed)?, identity.pin());
    let message = Writer::default().text(wanted).bytes(&proof).0;
    key.keep()?;
    Outgoing::message(Kind::Join, &message).send(&mut link, &mut Vec::new()).map_err(failed)?;
    let mut frame = Frame::default();
    let heard = receive(&mut link, &Bounds::table(Expecting::Welcome, MOST_MESSAGE), &mut frame, Wait::For(JOINING));
    heard.map_err(|error| refuse(format!("the coordinator did not accept it ({error}); ask for a new one")))?;
    reason(frame.table()).map_err(failed)
}
