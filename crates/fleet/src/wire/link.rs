//! A way to another machine: bytes in order, or an end.

use std::time::{Duration, Instant};

use crate::clock::{Clock, Receiver, RecvError, Sender, channel};

/// Bytes to and from one peer.
pub trait Link: Send {
    /// The clock by which it is waited for what comes.
    fn clock(&self) -> &Clock;
    /// Sends all of `bytes`.
    fn write(&mut self, bytes: &[u8]) -> Result<(), LinkError>;
    /// Waits until something has come, and puts as much of it into `out` as fits; says how much. Only after running
    /// out of time it may be asked again.
    fn read(&mut self, out: &mut [u8], deadline: Instant) -> Result<usize, LinkError>;
}

/// Why a link is of no more use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The other end is gone.
    #[error("the connection was closed")]
    Closed,
    /// Nothing came in time.
    #[error("it did not answer in time")]
    TimedOut,
    /// The other end has proved a key, and it is not one that may take part.
    #[error("the other end's key is not known here")]
    UnknownKey,
    /// The other end has ended the connection, and says so.
    #[error("the other end hung up; it may not know this machine's key any more")]
    HungUp,
    /// The coordinator says that this machine was revoked.
    #[error("this machine was removed from the fleet")]
    Revoked,
    /// The other end does not keep to the protocol, or the system refused.
    #[error("{0}")]
    Broken(String),
}

/// What becomes of each piece that is written: tests lose, repeat, hold back or damage them here, or cut the link with
/// `None`.
pub type LinkFaults = Box<dyn FnMut(Vec<u8>) -> Option<Vec<Vec<u8>>> + Send>;

/// One end of a link inside this process.
pub struct ChannelLink {
    clock: Clock,
    /// How long a piece is on its way.
    latency: Duration,
    /// Nothing once the link is cut.
    outgoing: Option<Sender<Piece>>,
    incoming: Receiver<Piece>,
    /// What is on its way.
    next: Option<Piece>,
    /// What has come and was not read.
    rest: Vec<u8>,
    faults: LinkFaults,
}

/// Bytes that were written at once, and when they arrive.
struct Piece {
    arrives: Instant,
    bytes: Vec<u8>,
}

/// Both ends of a link inside this process, with what goes wrong on the way from each.
pub fn channel_pair(faults: [LinkFaults; 2]) -> (ChannelLink, ChannelLink) {
    timed_pair(Clock::system(), Duration::ZERO, faults)
}

/// The same by another clock, with pieces that are on their way for a while.
pub fn timed_pair(clock: &Clock, latency: Duration, faults: [LinkFaults; 2]) -> (ChannelLink, ChannelLink) {
    let [(here, to_here), (there, to_there)] = [0, 1].map(|_| channel(clock, usize::MAX));
    let [from_here, from_there] = faults;
    let end = |outgoing, incoming, faults| {
        let (outgoing, clock) = (Some(outgoing), clock.clone());
        ChannelLink { clock, latency, outgoing, incoming, next: None, rest: Vec::new(), faults }
    };
    (end(there, to_here, from_here), end(here, to_there, from_there))
}

/// Every piece arrives once, in order and as it was.
pub fn fair() -> LinkFaults {
    Box::new(|piece| Some(vec![piece]))
}

impl ChannelLink {
    /// Waits until a piece has arrived.
    fn arrival(&mut self, deadline: Instant) -> Result<Vec<u8>, LinkError> {
        let piece = match self.next.take().map_or_else(|| self.incoming.receive(Some(deadline)), Ok) {
            Ok(piece) => piece,
            Err(RecvError::TimedOut) => return Err(LinkError::TimedOut),
            Err(RecvError::Disconnected) => return Err(LinkError::Closed),
        };
        let left = piece.arrives.min(deadline).saturating_duration_since(self.clock.now());
        if !left.is_zero() {
            self.clock.sleep(left);
        }
        if piece.arrives > deadline {
            self.next = Some(piece);
            return Err(LinkError::TimedOut);
        }
        Ok(piece.bytes)
    }
}

impl Link for ChannelLink {
    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        let pieces = (self.faults)(bytes.to_vec());
        let Some((outgoing, pieces)) = self.outgoing.as_ref().zip(pieces) else {
            self.outgoing = None;
            return Err(LinkError::Closed);
        };
        let arrives = self.clock.now() + self.latency;
        let arrive = pieces.into_iter().all(|bytes| outgoing.send(Piece { arrives, bytes }));
        if arrive { Ok(()) } else { Err(LinkError::Closed) }
    }

    fn read(&mut self, out: &mut [u8], deadline: Instant) -> Result<usize, LinkError> {
        while self.rest.is_empty() {
            self.rest = self.arrival(deadline)?;
        }
        let count = out.len().min(self.rest.len());
        out[..count].copy_from_slice(&self.rest[..count]);
        self.rest.drain(..count);
        Ok(count)
    }
}
