//! The coordinator's one port: members are admitted, invited machines may join, nobody else gets an answer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustls::ServerConfig;

use crate::audit::{Refusals, Verb};
use crate::membership::approval::{await_approval, code};
use crate::membership::connection_slots::ConnectionSlots;
use crate::membership::discovery::{Announcement, announce};
use crate::membership::fleet_keys::{FleetKeys, HeldKeys};
use crate::membership::handshakes::{HandshakePlace, Handshakes};
use crate::membership::invitation::proof;
use crate::membership::key_exchange::Connection;
use crate::membership::key_statement::SignedKeys;
use crate::membership::known_keys::KnownKeys;
use crate::membership::member::{KEY_EXPIRES, Standing};
use crate::membership::members::{JoinRequest, Joining};
use crate::membership::pairing::CoordinatorEnd;
use crate::membership::pairings::{PairedMachine, Pairings};
use crate::membership::rotation::offer_rotation;
use crate::wire::frame::{Bounds, Frame, Kind, Outgoing, Wait, receive};
use crate::wire::link::LinkError;
use crate::wire::message::{MOST_MESSAGE, Reader, Writer, broken, reason, refuse};
use crate::wire::tcp::HANDSHAKE;
use crate::wire::tls::{self, MaySpeak, Purpose};
use crate::wire::verbs::Expecting;
use crate::{Clock, Digest, FleetError, Identity, Invitation, Members, PendingIdentity, PendingMember, TcpLink};

/// A pause when the system has no more connections to give.
const RETRY: Duration = Duration::from_millis(50);
/// How long a coordinator may take to answer a machine that wants to join: it writes down who joins first, and a disk
/// may take its time. Who gives up before that is a member and does not know it.
pub(crate) const JOINING: Duration = Duration::from_secs(30);

/// A port that members connect to.
pub struct Listener {
    socket: TcpListener,
    identity: Identity,
    /// Where newer keys than that come from, if there can be any.
    keys: Option<Arc<FleetKeys>>,
    members: Arc<Members>,
    /// Where the pairing code comes from, if machines may join with one.
    pairings: Option<Pairings>,
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
    /// A machine has proved an invitation, and waits to be approved.
    Pending {
        /// The name it will have.
        node: String,
        /// What it shows too, unless somebody is between.
        code: String,
    },
    /// A machine has a new key.
    Rotated {
        /// Its name.
        node: String,
    },
    /// A machine has joined.
    Joined {
        /// The name it was given.
        node: String,
    },
    /// A machine has joined with the pairing code; whoever shows that has it in the file of the code.
    Paired {
        /// The name it was given.
        node: String,
    },
    /// Someone was turned away.
    TurnedAway {
        /// From where.
        address: SocketAddr,
        /// Why.
        problem: String,
        /// Whether people should be told: not of another one from there in a minute, and not of one that tried a
        /// pairing code, which whoever shows the code is told of.
        is_news: bool,
    },
}

impl Listener {
    /// Listens at an address with the coordinator's key.
    pub fn bind(address: &str, identity: &Identity, members: Arc<Members>) -> Result<Listener, FleetError> {
        let name = Path::new(address);
        let addresses: Vec<SocketAddr> = address.to_socket_addrs().map_err(FleetError::io("look up", name))?.collect();
        let socket = TcpListener::bind(&addresses[..]).map_err(FleetError::io("listen at", name))?;
        Ok(Listener { socket, identity: identity.clone(), keys: None, members, pairings: None, announcement: None })
    }

    /// The same with the keys of a fleet, which may be replaced while it listens: every connection is answered with the
    /// newest.
    pub fn with_keys(self, keys: &Arc<FleetKeys>) -> Listener {
        Listener { keys: Some(Arc::clone(keys)), ..self }
    }

    /// The same, with machines that may join with a pairing code while one is shown.
    pub fn with_pairings(self, pairings: Pairings) -> Listener {
        Listener { pairings: Some(pairings), ..self }
    }

    /// Where it listens.
    pub fn address(&self) -> Result<SocketAddr, FleetError> {
        self.socket.local_addr().map_err(FleetError::io("ask for", Path::new("the port")))
    }

    /// Lets machines of the local network find it by the first key of the fleet, which stays its name.
    pub fn announce(&mut self, fleet: Digest) -> Result<(), FleetError> {
        self.announcement = Some(announce(fleet, self.address()?)?);
        Ok(())
    }

    /// Tells `arrive` of everyone who comes, each on a thread of its own, until it is stopped.
    pub fn run(self, arrive: impl Fn(Arrival) + Send + Sync + 'static) -> Listening {
        let address = self.address();
        let Listener { socket, identity, keys, members, pairings, announcement } = self;
        let (admitted, refusals) = (ConnectionSlots::default(), Mutex::new(Refusals::of(Verb::Connect)));
        let (config, pairings) = (Mutex::default(), pairings.map(Arc::new));
        let reception = Arc::new(Reception { identity, keys, config, members, pairings, admitted, refusals, arrive });
        let (handshakes, stopped) = (Handshakes::default(), Arc::<AtomicBool>::default());
        let is_stopped = Arc::clone(&stopped);
        let accepting = thread::spawn(move || {
            let _announcement = announcement;
            for socket in socket.incoming() {
                if is_stopped.load(Ordering::SeqCst) {
                    return;
                }
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
        Listening { address, stopped, accepting }
    }
}

/// A port on which connections are answered, also when this is dropped.
pub struct Listening {
    address: Result<SocketAddr, FleetError>,
    stopped: Arc<AtomicBool>,
    accepting: JoinHandle<()>,
}

impl Listening {
    /// Gives the port back: when this returns, another process can have it.
    pub fn stop(self) -> Result<(), FleetError> {
        self.stopped.store(true, Ordering::SeqCst);
        let address = self.address?;
        let here: IpAddr = if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        let ip = if address.ip().is_unspecified() { here } else { address.ip() };
        // Whoever waits for a connection sees that it is stopped when one comes.
        let woken = TcpStream::connect_timeout(&SocketAddr::new(ip, address.port()), HANDSHAKE);
        woken.map_err(FleetError::io("stop listening at", Path::new(&address.to_string())))?;
        // It cannot panic: it only takes connections and starts threads.
        let _ = self.accepting.join();
        Ok(())
    }
}

/// What every connection that may prove itself needs.
struct Reception<F> {
    identity: Identity,
    keys: Option<Arc<FleetKeys>>,
    /// How connections are answered, and with which key.
    config: Mutex<Option<(Digest, Arc<ServerConfig>)>>,
    members: Arc<Members>,
    pairings: Option<Arc<Pairings>>,
    admitted: ConnectionSlots,
    refusals: Mutex<Refusals>,
    arrive: F,
}

/// Who holds the slots of machines that wait to be approved; no machine can be called this.
const PENDING: &str = "machines that wait to be approved";

impl<F: Fn(Arrival)> Reception<F> {
    fn receive(&self, socket: TcpStream, address: SocketAddr, place: HandshakePlace) {
        let arrival = match self.answer(socket, address) {
            Ok(Answer::Arrived(arrival)) => arrival,
            Ok(Answer::NotPaired(problem)) => Arrival::TurnedAway { address, problem, is_news: false },
            Ok(Answer::Pending(link, pending)) => return self.hold(link, &pending, (address, place)),
            Ok(Answer::Checked) => return place.remember_member(),
            Err(problem) => self.turned_away(address, problem),
        };
        let holder = match &arrival {
            Arrival::Member { node, .. }
            | Arrival::Joined { node }
            | Arrival::Paired { node }
            | Arrival::Rotated { node }
            | Arrival::Pending { node, .. } => {
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

    /// Holds a machine that waits to be approved. It has a slot of its own kind, and nothing else.
    fn hold(&self, mut link: Box<TcpLink>, pending: &PendingMember, (address, place): (SocketAddr, HandshakePlace)) {
        drop(place);
        let slot = self.admitted.take(PENDING);
        if slot.is_none() {
            // Where that cannot be written, it is forgotten when the invitation expires.
            let _ = self.members.withdraw(pending);
            return;
        }
        let (node, code) = (pending.name.clone(), pending.code.clone());
        (self.arrive)(Arrival::Pending { node: node.clone(), code });
        let approved = await_approval(&mut *link, &self.members, pending);
        (self.arrive)(match approved.and_then(|()| self.welcome(&mut link, &node)) {
            Ok(()) => Arrival::Joined { node },
            Err(problem) => self.turned_away(address, problem),
        });
    }

    /// Tells a machine that it is a member, and of which name.
    fn welcome(&self, link: &mut TcpLink, node: &str) -> Result<(), String> {
        let keys = self.held()?.map(|held| *held.signed());
        let message = JoinedMessage { node: node.to_owned(), keys }.bytes();
        let sent = Outgoing::message(Kind::Joined, &message).send(link, &mut Vec::new());
        sent.map(|_| ()).map_err(|error| error.to_string())
    }

    /// The newest keys of the fleet, if it has other than the one that it began to listen with.
    fn held(&self) -> Result<Option<Arc<HeldKeys>>, String> {
        self.keys.as_ref().map(|keys| keys.current().map_err(|error| error.to_string())).transpose()
    }

    /// How a connection is answered with the newest keys, and with which key.
    fn config(&self, held: Option<&HeldKeys>) -> Result<(Digest, Arc<ServerConfig>), String> {
        let identity = held.map_or(&self.identity, |held| &held.keys().coordinator);
        let mut config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((pin, config)) = config.as_ref().filter(|(pin, _)| *pin == identity.pin()) {
            return Ok((*pin, Arc::clone(config)));
        }
        let (asked, pairings) = (Arc::clone(&self.members), self.pairings.clone());
        let may_join = move || pairings.as_ref().is_some_and(|pairings| pairings.is_shown());
        // One whose key is too old, or that was excluded or revoked, is told so.
        let may_speak =
            Arc::new(move |key: Digest| asked.standing(key) != Standing::Unknown || asked.invites() || may_join());
        let made = tls::server(identity, may_speak).map_err(|error| error.to_string())?;
        Ok(config.insert((identity.pin(), made)).clone())
    }

    fn turned_away(&self, address: SocketAddr, problem: String) -> Arrival {
        let is_news = self.is_news(address, &problem);
        Arrival::TurnedAway { address, problem, is_news }
    }

    /// Who it is, or why it is turned away.
    fn answer(&self, socket: TcpStream, address: SocketAddr) -> Result<Answer, String> {
        // So long in all, whatever is proved in that time.
        let deadline = Clock::system().now() + HANDSHAKE;
        let held = self.held()?;
        let (pin, config) = self.config(held.as_deref())?;
        let mut link = TcpLink::accept(socket, &config, deadline).map_err(|error| error.to_string())?;
        let key = link.peer().ok_or("it showed no key")?;
        if link.purpose() == Purpose::Pair {
            return self.pair(link, (pin, key), (address, deadline));
        }
        // auth: member-standing
        let node = match self.members.standing(key) {
            Standing::Member(node) => node,
            Standing::Expired(node) => {
                refuse(&mut link, expired(&node));
                return Err(expired(&node));
            }
            Standing::Excluded(node) => {
                refuse(&mut link, excluded(&node));
                return Err(excluded(&node));
            }
            Standing::Revoked(node) if link.purpose() != Purpose::Join => {
                self.dismiss(&mut link, held.as_deref(), (pin, key))?;
                return Err(format!("{node} was revoked"));
            }
            Standing::Revoked(_) => return self.take_in(link, (pin, key), deadline),
            // It is told nothing: who was not invited learns nothing of who is.
            Standing::Unknown => return self.take_in(link, (pin, key), deadline),
        };
        // Where that cannot be written, both its keys are good until it can.
        let _ = self.members.came(key);
        match link.purpose() {
            Purpose::Work => Ok(Answer::Arrived(Arrival::Member { node, link: Box::new(link) })),
            // It was told so before, and has not heard it.
            Purpose::Join | Purpose::Pair => {
                self.welcome(&mut link, &node)?;
                Ok(Answer::Arrived(Arrival::Joined { node }))
            }
            Purpose::Rotate => {
                show_keys(&mut link, held.as_deref())?;
                match offer_rotation(&mut link, &self.members, (pin, key))? {
                    true => Ok(Answer::Arrived(Arrival::Rotated { node })),
                    false => Ok(Answer::Checked),
                }
            }
        }
    }

    /// Tells a machine that it is a member no more. One that asks for keys is shown them, and asks again for work.
    fn dismiss(&self, link: &mut TcpLink, held: Option<&HeldKeys>, keys: (Digest, Digest)) -> Result<(), String> {
        if link.purpose() == Purpose::Rotate {
            show_keys(link, held)?;
            return offer_rotation(link, &self.members, keys).map(|_| ());
        }
        let (mut frame, bounds) = (Frame::default(), Bounds::table(Expecting::Greeting, MOST_MESSAGE));
        // What it says of itself is heard, so that the connection does not end with something unread.
        receive(link, &bounds, &mut frame, Wait::For(HANDSHAKE)).map_err(|error| error.to_string())?;
        Outgoing::message(Kind::Revoked, &[]).send(link, &mut Vec::new()).map(|_| ()).map_err(|error| error.to_string())
    }

    /// Takes in a machine that proves the pairing code.
    fn pair(
        &self,
        mut link: TcpLink,
        (pin, key): (Digest, Digest),
        (address, deadline): (SocketAddr, Instant),
    ) -> Result<Answer, String> {
        let pairings = self.pairings.as_ref().ok_or("this coordinator shows no pairing code")?;
        let session = link.secret().map_err(|error| error.to_string())?;
        let at = Connection { session: &session, coordinator: pin, joiner: key };
        let address = address.ip().to_string();
        let end = CoordinatorEnd { pairings, members: &self.members, at, address, deadline };
        match end.admit(&mut link) {
            Ok(PairedMachine { node, .. }) => {
                self.welcome(&mut link, &node)?;
                Ok(Answer::Arrived(Arrival::Paired { node }))
            }
            Err(problem) => Ok(Answer::NotPaired(problem)),
        }
    }

    /// Takes in a machine that proves an invitation, on a connection with these keys of the coordinator and the machine.
    fn take_in(&self, mut link: TcpLink, (pin, key): (Digest, Digest), deadline: Instant) -> Result<Answer, String> {
        let mut frame = Frame::default();
        let bounds = Bounds::table(Expecting::Proof, MOST_MESSAGE);
        let wait = Wait::Until { end: deadline, silence: HANDSHAKE };
        receive(&mut link, &bounds, &mut frame, wait).map_err(|error| error.to_string())?;
        let JoinMessage { wanted, proof } = JoinMessage::parse(frame.table()).map_err(|error| error.to_string())?;
        let session = link.secret().map_err(|error| error.to_string())?;
        let code = code(&session, pin, key);
        let request = JoinRequest { wanted: &wanted, key, session: &session, proof: &proof, code };
        match self.members.join(request).map_err(|error| error.to_string())? {
            None => Err("it was not invited, or its invitation is used up".to_owned()),
            Some(Joining::Pending(pending)) => Ok(Answer::Pending(Box::new(link), pending)),
            Some(Joining::Joined(node)) => {
                self.welcome(&mut link, &node)?;
                Ok(Answer::Arrived(Arrival::Joined { node }))
            }
        }
    }

    /// Whether people should hear of it.
    fn is_news(&self, address: SocketAddr, problem: &str) -> bool {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Clock::system().now();
        drop(refusals.over(now));
        refusals.count(&address.ip().to_string(), problem, now).is_some()
    }
}

/// Shows a member which keys the fleet has.
fn show_keys(link: &mut TcpLink, held: Option<&HeldKeys>) -> Result<(), String> {
    let held = held.ok_or("this coordinator does not state its keys")?;
    let session = link.secret().map_err(|error| error.to_string())?;
    let shown = held.shown(&session).map_err(|error| error.to_string())?;
    shown.send(link).map_err(|error| error.to_string())
}

/// What a connection came to.
enum Answer {
    Arrived(Arrival),
    /// A machine has not proved the pairing code.
    NotPaired(String),
    /// A member that has a key which is good.
    Checked,
    /// A machine that waits to be approved, on this connection.
    Pending(Box<TcpLink>, PendingMember),
}

/// What a machine hears whose key is too old.
fn expired(node: &str) -> String {
    let days = KEY_EXPIRES / 86_400;
    format!(
        "the key of {node} is older than {days} days; if it is still yours, run `cascadia fleet trust {node}` on the \
        coordinator, and it gets a new one"
    )
}

/// What a machine hears that computed wrong results.
fn excluded(node: &str) -> String {
    format!("{node} is excluded; if it may take part again, run `cascadia fleet trust {node}` on the coordinator")
}

/// What a machine learns of its fleet when it joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedFleet {
    /// The name that it has there.
    pub node: String,
    /// The keys that it has.
    pub keys: KnownKeys,
}

/// What a machine says that wants to join.
pub(crate) struct JoinMessage {
    /// What it would like to be called.
    wanted: String,
    /// That it knows an invitation.
    proof: [u8; 32],
}

impl JoinMessage {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        Writer::default().text(&self.wanted).bytes(&self.proof).0
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<JoinMessage, LinkError> {
        let mut reader = Reader(bytes);
        let message = JoinMessage { wanted: reader.text()?, proof: reader.array()? };
        reader.end()?;
        Ok(message)
    }
}

/// What a machine is told when it joins.
pub(crate) struct JoinedMessage {
    node: String,
    /// The newest statement of the fleet's keys, if it makes any.
    keys: Option<SignedKeys>,
}

impl JoinedMessage {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let writer = Writer::default().text(&self.node).number(self.keys.is_some().into());
        self.keys.iter().fold(writer, |writer, keys| keys.write(writer)).0
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<JoinedMessage, LinkError> {
        let mut reader = Reader(bytes);
        let (node, count) = (reader.text()?, reader.number()?);
        let keys = match count {
            0 => None,
            1 => Some(SignedKeys::read(&mut reader)?),
            _ => return Err(broken()),
        };
        reader.end()?;
        Ok(JoinedMessage { node, keys })
    }

    /// What is learned from it with an invitation.
    pub(crate) fn learned(self, coordinator: Digest, now: u64) -> Result<JoinedFleet, String> {
        let keys = match &self.keys {
            Some(keys) => KnownKeys::joined(coordinator, keys, now)?,
            None => KnownKeys::invited(coordinator),
        };
        Ok(JoinedFleet { node: self.node, keys })
    }
}

/// Joins the fleet of an invitation with this machine's key; gives what it learns of it. The key is kept
/// once the coordinator is reached, and before it takes the machine in: who joins again is then the same machine. If
/// people have to approve it, `show` hears the code that both machines show, and it is waited for them.
pub fn join(
    invitation: &Invitation,
    key: &PendingIdentity,
    wanted: &str,
    show: impl FnOnce(&str),
) -> Result<JoinedFleet, FleetError> {
    let identity = key.identity();
    let refuse = |problem: String| FleetError::Invitation { problem };
    if Clock::system().unix_seconds() >= invitation.expires {
        return Err(refuse("it has expired; ask for a new one".to_owned()));
    }
    let failed = |error: LinkError| match error {
        LinkError::UnknownKey => refuse(
            "whoever answers at its address has another key; if the coordinator's was replaced, ask for a new one"
                .to_owned(),
        ),
        error => refuse(format!("{error}; is the coordinator waiting for machines to join?")),
    };
    let pin = invitation.coordinator;
    let keys = (identity, Arc::new(move |key| key == pin) as MaySpeak);
    let mut link = TcpLink::dial_for(Purpose::Join, &invitation.addresses, keys).map_err(failed)?;
    let session = link.secret().map_err(failed)?;
    let proof = proof(&invitation.proof_key(), &session, identity.pin());
    let message = JoinMessage { wanted: wanted.to_owned(), proof }.bytes();
    key.keep()?;
    Outgoing::message(Kind::Join, &message).send(&mut link, &mut Vec::new()).map_err(failed)?;
    let (mut frame, mut show) = (Frame::default(), Some(show));
    loop {
        let bounds = Bounds::table(Expecting::Welcome, MOST_MESSAGE);
        let heard = receive(&mut link, &bounds, &mut frame, Wait::For(JOINING));
        heard.map_err(|error| refuse(format!("the coordinator did not accept it ({error}); ask for a new one")))?;
        match frame.header.kind {
            Kind::Pending => {
                let code = code(&session, invitation.coordinator, identity.pin());
                show.take().into_iter().for_each(|show| show(&code));
            }
            Kind::Refused => {
                let problem = reason(frame.table()).map_err(failed)?;
                return Err(refuse(format!("the coordinator says: {problem}")));
            }
            _ => {
                let joined = JoinedMessage::parse(frame.table()).map_err(failed)?;
                return joined.learned(pin, Clock::system().unix_seconds()).map_err(refuse);
            }
        }
    }
}
