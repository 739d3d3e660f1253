//! Links over TCP, encrypted: a worker dials, the coordinator listens.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConfig, ServerConnection};
use zeroize::Zeroizing;

use crate::wire::link::{Link, LinkError};
use crate::wire::tls::{self, MaySpeak, Purpose, UNKNOWN_KEY};
use crate::{Clock, Digest, Identity};

/// How long a connection may take to prove its key.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long a peer may take nothing of what it is sent.
const STALL: Duration = Duration::from_secs(2);
/// Bytes that it takes in a second at least.
const SLOWEST: u32 = 64 << 10;
/// What both ends derive from a connection to prove something about it.
const EXPORTER: &[u8] = b"EXPERIMENTAL cascadia fleet join";

/// An encrypted connection whose two ends have proved their keys.
pub struct TcpLink {
    socket: TcpStream,
    connection: Connection,
}

impl TcpLink {
    /// Connects to the coordinator with this key, at the first of its addresses that answers.
    pub fn dial(addresses: &[String], identity: &Identity, coordinator: Digest) -> Result<TcpLink, LinkError> {
        TcpLink::dial_for(Purpose::Work, addresses, (identity, Arc::new(move |key| key == coordinator)))
    }

    /// The same for another purpose than to work, and with whoever has one of the keys that may speak.
    pub(crate) fn dial_for(
        purpose: Purpose,
        addresses: &[String],
        (identity, may_speak): (&Identity, MaySpeak),
    ) -> Result<TcpLink, LinkError> {
        let config = tls::client(identity, may_speak, purpose).map_err(broken)?;
        let mut problem = LinkError::Broken("the coordinator has no address".to_owned());
        for address in addresses {
            let resolved = address.to_socket_addrs().map(Iterator::collect::<Vec<SocketAddr>>);
            for address in resolved.unwrap_or_default() {
                match TcpStream::connect_timeout(&address, HANDSHAKE) {
                    Ok(socket) => {
                        // Nobody is known by name: the key is all that counts.
                        let name = ServerName::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST).into());
                        let connection = ClientConnection::new(Arc::clone(&config), name).map_err(broken)?;
                        match TcpLink::prove(socket, connection.into(), Clock::system().now() + HANDSHAKE) {
                            Ok(link) => return Ok(link),
                            // Of several addresses, the one at which somebody answered tells most.
                            Err(error) if problem != LinkError::UnknownKey => problem = error,
                            Err(_) => {}
                        }
                    }
                    Err(error) if problem != LinkError::UnknownKey => {
                        problem = LinkError::Broken(format!("{address}: {error}"));
                    }
                    Err(_) => {}
                }
            }
        }
        Err(problem)
    }

    /// Answers a connection, which must prove its key before `deadline`; nothing is said to a peer whose key is not known.
    pub(crate) fn accept(
        socket: TcpStream,
        config: &Arc<ServerConfig>,
        deadline: Instant,
    ) -> Result<TcpLink, LinkError> {
        let connection = ServerConnection::new(Arc::clone(config)).map_err(broken)?;
        TcpLink::prove(socket, connection.into(), deadline)
    }

    fn prove(socket: TcpStream, connection: Connection, deadline: Instant) -> Result<TcpLink, LinkError> {
        socket.set_nodelay(true).map_err(broken)?;
        socket.set_write_timeout(Some(STALL)).map_err(broken)?;
        let mut link = TcpLink { socket, connection };
        // A frame goes out at once, so what waits to be sent is never more than one.
        link.connection.set_buffer_limit(None);
        // One piece at a time: a peer that sends byte after byte has no more time than others.
        while link.connection.is_handshaking() {
            link.flush(deadline)?;
            link.fetch(deadline)?;
        }
        link.flush(deadline)?;
        Ok(link)
    }

    /// The digest of the other end's key.
    pub fn peer(&self) -> Option<Digest> {
        self.connection.peer_certificates()?.first().map(|key| Digest::of(key))
    }

    /// What the one who dialled said that it is for.
    pub(crate) fn purpose(&self) -> Purpose {
        Purpose::named(self.connection.alpn_protocol())
    }

    /// A second handle to the socket, with which another thread can end the connection.
    pub(crate) fn socket(&self) -> Option<TcpStream> {
        self.socket.try_clone().ok()
    }

    /// What only the two ends of this connection know.
    pub(crate) fn secret(&self) -> Result<Zeroizing<[u8; 32]>, LinkError> {
        self.connection.export_keying_material(Zeroizing::new([0; 32]), EXPORTER, None).map_err(broken)
    }

    /// Takes in what the peer has sent, and waits for it.
    fn fetch(&mut self, deadline: Instant) -> Result<(), LinkError> {
        self.wait_until(deadline)?;
        match self.connection.read_tls(&mut self.socket) {
            Ok(0) => return Err(LinkError::Closed),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(ended(error)),
        }
        match self.connection.process_new_packets() {
            Ok(_) => Ok(()),
            Err(rustls::Error::AlertReceived(_)) => Err(LinkError::HungUp),
            Err(error) => {
                // The peer is told by an alert, if it still listens.
                let _ = self.flush(deadline);
                Err(if error == UNKNOWN_KEY { LinkError::UnknownKey } else { broken(error) })
            }
        }
    }

    /// Sends what waits to be sent, all of it before `deadline`: a peer that takes byte after byte has no more time than
    /// others.
    fn flush(&mut self, deadline: Instant) -> Result<(), LinkError> {
        let mut allowed = STALL;
        while self.connection.wants_write() {
            let left = deadline.saturating_duration_since(self.clock().now());
            if left.is_zero() {
                return Err(LinkError::TimedOut);
            }
            if left < allowed {
                allowed = left;
                self.socket.set_write_timeout(Some(allowed)).map_err(broken)?;
            }
            match self.connection.write_tls(&mut self.socket) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(ended(error)),
                _ => {}
            }
        }
        match allowed < STALL {
            true => self.socket.set_write_timeout(Some(STALL)).map_err(broken),
            false => Ok(()),
        }
    }

    /// Sends all of `bytes` before `deadline`.
    fn write_before(&mut self, bytes: &[u8], deadline: Instant) -> Result<(), LinkError> {
        self.connection.writer().write_all(bytes).map_err(ended)?;
        self.flush(deadline)
    }

    /// Lets the next read wait no longer than `deadline`.
    fn wait_until(&self, deadline: Instant) -> Result<(), LinkError> {
        let left = deadline.saturating_duration_since(self.clock().now());
        if left.is_zero() {
            return Err(LinkError::TimedOut);
        }
        self.socket.set_read_timeout(Some(left)).map_err(broken)
    }
}

impl Link for TcpLink {
    /// Sockets wait by the system's clock.
    fn clock(&self) -> &Clock {
        Clock::system()
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        let time = STALL + Duration::from_secs(bytes.len() as u64) / SLOWEST;
        self.write_before(bytes, self.clock().now() + time)
    }

    fn read(&mut self, out: &mut [u8], deadline: Instant) -> Result<usize, LinkError> {
        loop {
            match self.connection.reader().read(out) {
                Ok(0) => return Err(LinkError::Closed),
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.fetch(deadline)?,
                Err(error) => return Err(ended(error)),
            }
        }
    }
}

fn ended(error: std::io::Error) -> LinkError {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => LinkError::TimedOut,
        ErrorKind::UnexpectedEof
        | ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe => LinkError::Closed,
        _ => broken(error),
    }
}

fn broken(error: impl std::fmt::Display) -> LinkError {
    LinkError::Broken(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn a_peer_that_takes_a_little_now_and_then_is_let_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let [here, there] =
            ["here", "there"].map(|name| Identity::open_or_make(&folder.path().join(name)).expect("a key"));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it listens").to_string();
        let pin = here.pin();
        thread::spawn(move || {
            let mut link = TcpLink::dial(&[address], &there, pin).expect("it is answered");
            // It waits for as long as it takes, not for what was left of the time to prove keys.
            link.socket.set_read_timeout(None).expect("it can be set");
            let mut piece = vec![0; 16 << 10];
            while link.socket.read(&mut piece).is_ok_and(|count| count > 0) {
                Clock::system().sleep(Duration::from_millis(20));
            }
        });
        let config = tls::server(&here, Arc::new(|_| true)).expect("a key");
        let (socket, _) = listener.accept().expect("it dials");
        let mut link = TcpLink::accept(socket, &config, Clock::system().now() + HANDSHAKE).expect("it proves its key");
        // What the system itself keeps for the peer is far less than this.
        let sent = link.write_before(&vec![0; 32 << 20], Clock::system().now() + Duration::from_millis(500));
        assert_eq!(sent, Err(LinkError::TimedOut));
    }
}
