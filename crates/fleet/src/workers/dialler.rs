//! How a worker reaches its coordinator: where it is, which keys it has by now, and an end to all connections.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::worker_keys::WorkerKeys;
use crate::look_around;
use crate::wire::link::LinkError;
use crate::wire::tcp::TcpLink;
use crate::wire::tls::{MaySpeak, Purpose};

/// How long to listen for where the coordinator is now.
const LOOKING: Duration = Duration::from_secs(1);

/// What came of asking for newer keys. The inner error is what is wrong with whoever answered.
pub(super) type Answer = Result<Result<(), String>, LinkError>;

/// Connects a worker to its coordinator until it is stopped.
pub(super) struct Dialler {
    pub(super) keys: WorkerKeys,
    addresses: Vec<String>,
    /// How often the coordinator was asked for newer keys.
    questions: AtomicU64,
    /// What came of it the last time; held by whoever asks.
    answer: Mutex<Answer>,
    /// Open connections, to be cut by a stop.
    sockets: Mutex<Vec<TcpStream>>,
    stopped: AtomicBool,
}

impl Dialler {
    /// Looks for the coordinator at these addresses first.
    pub(super) fn new(keys: WorkerKeys, addresses: Vec<String>) -> Dialler {
        let (questions, answer) = (AtomicU64::new(0), Mutex::new(Ok(Ok(()))));
        Dialler { keys, addresses, questions, answer, sockets: Mutex::default(), stopped: AtomicBool::new(false) }
    }

    /// Ends all connections at once, and makes no more.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        for socket in lock(&self.sockets).drain(..) {
            // One that has ended already cannot be shut down.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Connects to the coordinator for work. One that has not proved for a while that its keys are the newest does so
    /// first, and so does one that has another key than before.
    pub(super) fn dial(&self) -> Result<TcpLink, LinkError> {
        if !self.keys.are_proved() {
            let answer = self.ask()?;
            // A machine that gets no new key of its own, because its disk is full, works on with the old one.
            if !self.keys.are_proved() {
                answer.map_err(LinkError::Broken)?;
            }
        }
        match self.dial_known() {
            Err(LinkError::UnknownKey) => {
                self.ask()?.map_err(LinkError::Broken)?;
                self.dial_known()
            }
            dialled => dialled,
        }
    }

    /// Connects for work to whoever has the coordinator's key as it is known here: where the coordinator was, else where
    /// somebody in the local network says that it is now.
    fn dial_known(&self) -> Result<TcpLink, LinkError> {
        let may_speak = self.keys.coordinator().map_err(LinkError::Broken)?;
        let connect = |addresses: &[String]| self.connect(Purpose::Work, addresses, &may_speak);
        connect(&self.addresses).or_else(|error| connect(&self.heard()).map_err(|_| error))
    }

    /// Asks the coordinator for newer keys, and tells what is new.
    pub(super) fn ask(&self) -> Answer {
        let before = self.questions.load(Ordering::SeqCst);
        let mut answer = lock(&self.answer);
        // Whoever waited while another thread asked has its answer.
        if self.questions.load(Ordering::SeqCst) == before {
            *answer = self.ask_at(&self.addresses);
            if *answer != Ok(Ok(())) && self.ask_at(&self.heard()) == Ok(Ok(())) {
                *answer = Ok(Ok(()));
            }
            self.questions.fetch_add(1, Ordering::SeqCst);
        }
        answer.clone()
    }

    /// Asks at one address after the other: others may answer where the coordinator was.
    fn ask_at(&self, addresses: &[String]) -> Answer {
        let mut answer = Err(LinkError::Broken("the coordinator has no address".to_owned()));
        for address in addresses {
            answer = self.ask_one(std::slice::from_ref(address));
            if answer == Ok(Ok(())) {
                break;
            }
        }
        answer
    }

    fn ask_one(&self, address: &[String]) -> Answer {
        // Whoever answers is told nothing before it has shown the right keys.
        let anyone: MaySpeak = Arc::new(|_| true);
        let mut link = self.connect(Purpose::Rotate, address, &anyone)?;
        let (peer, session) = (link.peer().ok_or(LinkError::UnknownKey)?, link.secret()?);
        let learned = self.keys.ask(&mut link, (peer, &session));
        Ok(learned.map(|news| news.into_iter().for_each(|news| self.keys.tell(news))))
    }

    fn connect(&self, purpose: Purpose, addresses: &[String], may_speak: &MaySpeak) -> Result<TcpLink, LinkError> {
        let link = TcpLink::dial_for(purpose, addresses, (&self.keys.identity(), Arc::clone(may_speak)))?;
        let mut sockets = lock(&self.sockets);
        sockets.retain(|socket| socket.peer_addr().is_ok());
        sockets.extend(link.socket());
        drop(sockets);
        // A stop that came just before has not seen this connection.
        if self.is_stopped() { Err(LinkError::Closed) } else { Ok(link) }
    }

    /// Where somebody in the local network says that the coordinator is now.
    fn heard(&self) -> Vec<String> {
        // One that was on this machine cannot have moved.
        let moved = !self.addresses.iter().all(|address| is_here(address));
        if moved { look_around(self.keys.known().fleet(), LOOKING) } else { Vec::new() }
    }
}

/// Whether an address is one of this machine itself.
fn is_here(address: &str) -> bool {
    address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback())
}

/// Nothing behind these locks can be left half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
