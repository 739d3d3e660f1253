//! The coordinator's one port: members are admitted, invited machines may join, nobody else gets an answer.

use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustls::ServerConfig;

use crate::membership::connection_slots::ConnectionSlots;
use crate::membership::discovery::{Announcement, announce};
use crate::membership::invitation::proof;
use crate::wire::frame::{Bounds, Frame, Kind, Outgoing, Wait, receive};
use crate::wire::link::LinkError;
use crate::wire::message::{MOST_MESSAGE, Reader, Writer, reason};
use crate::wire::tcp::HANDSHAKE;
use crate::wire::tls;
use crate::wire::verbs::Expecting;
use crate::{Clock, Digest, FleetError, Identity, Invitation, Members, TcpLink};

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
        let (shared, arrive) = (Arc::new((config, members)), Arc::new(arrive));
        let [proving, admitted] = [0, 1].map(|_| ConnectionSlots::default());
        thread::spawn(move || {
            let _announcement = announcement;
            for socket in socket.incoming() {
                // A connection that failed before it began, or more at once than can be: both may come again.
                let Ok(socket) = socket else {
                    Clock::system().sleep(RETRY);
                    continue;
                };
                let Some(slot) = proving.take() else { continue };
                let (shared, arrive, admitted) = (Arc::clone(&shared), Arc::clone(&arrive), admitted.clone());
                thread::spawn(move || {
                    let arrival = answer(socket, &shared.0, &shared.1);
                    drop(slot);
                    // Members that find no place come again.
                    if let (Some(arrival), Some(_slot)) = (arrival, admitted.take()) {
                        arrive(arrival);
                    }
                });
            }
        });
    }
}

fn answer(socket: TcpStream, config: &Arc<ServerConfig>, members: &Members) -> Option<Arrival> {
    let address = socket.peer_addr().ok()?;
    let turned_away = |problem: String| Some(Arrival::TurnedAway { address, problem });
    // So long in all, whatever is proved in that time.
    let deadline = Clock::system().now() + HANDSHAKE;
    let mut link = match TcpLink::accept(socket, config, deadline) {
        Ok(link) => link,
        Err(error) => return turned_away(error.to_string()),
    };
    let Some(key) = link.peer() else { return turned_away("it showed no key".to_owned()) };
    if let Some(node) = members.name_of(key) {
        return Some(Arrival::Member { node, link: Box::new(link) });
    }
    match take_in(&mut link, key, (members, deadline)) {
        Ok(Some(node)) => Some(Arrival::Joined { node }),
        // It is told nothing: who was not invited learns nothing of who is.
        Ok(None) => turned_away("it was not invited, or its invitation is used up".to_owned()),
        Err(problem) => turned_away(problem),
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

/// Joins the fleet of an invitation with this machine's key; gives the name that it was given there.
pub fn join(invitation: &Invitation, identity: &Identity, wanted: &str) -> Result<String, FleetError> {
    let refuse = |problem: String| FleetError::Invitation { problem };
    if Clock::system().unix_seconds() >= invitation.expires {
        return Err(refuse("it has expired; ask for a new one".to_owned()));
    }
    let failed = |error: LinkError| refuse(format!("{error}; is the coordinator waiting for machines to join?"));
    let mut link = TcpLink::dial(&invitation.addresses, identity, invitation.coordinator).map_err(failed)?;
    let proof = proof(&invitation.proof_key(), &link.secret().map_err(failed)?, identity.pin());
    let message = Writer::default().text(wanted).bytes(&proof).0;
    Outgoing::message(Kind::Join, &message).send(&mut link, &mut Vec::new()).map_err(failed)?;
    let mut frame = Frame::default();
    let heard = receive(&mut link, &Bounds::table(Expecting::Welcome, MOST_MESSAGE), &mut frame, Wait::For(JOINING));
    heard.map_err(|error| refuse(format!("the coordinator did not accept it ({error}); ask for a new one")))?;
    reason(frame.table()).map_err(failed)
}
