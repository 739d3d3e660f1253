//! A way to another machine: bytes in order, or an end.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Instant;

/// Bytes to and from one peer.
pub trait Link: Send {
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
    /// The other end does not keep to the protocol, or the system refused.
    #[error("{0}")]
    Broken(String),
}

/// What becomes of each piece that is written: tests lose, repeat, hold back or damage them here, or cut the link with
/// `None`.
pub type LinkFaults = Box<dyn FnMut(Vec<u8>) -> Option<Vec<Vec<u8>>> + Send>;

/// One end of a link inside this process.
pub struct ChannelLink {
    /// Nothing once the link is cut.
    outgoing: Option<Sender<Vec<u8>>>,
    incoming: Receiver<Vec<u8>>,
    /// What has come and was not read.
    rest: Vec<u8>,
    faults: LinkFaults,
}

/// Both ends of a link inside this process, with the weather on the way from each.
pub fn channel_pair(faults: [LinkFaults; 2]) -> (ChannelLink, ChannelLink) {
    let ((here, to_here), (there, to_there)) = (channel(), channel());
    let [from_here, from_there] = faults;
    let end = |outgoing, incoming, faults| ChannelLink { outgoing: Some(outgoing), incoming, rest: Vec::new(), faults };
    (end(there, to_here, from_here), end(here, to_there, from_there))
}

/// Every piece arrives once, in order and as it was.
pub fn fair() -> LinkFaults {
    Box::new(|piece| Some(vec![piece]))
}

impl Link for ChannelLink {
    fn write(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        let pieces = (self.faults)(bytes.to_vec());
        let Some((outgoing, pieces)) = self.outgoing.as_ref().zip(pieces) else {
            self.outgoing = None;
            return Err(LinkError::Closed);
        };
        pieces.into_iter().try_for_each(|piece| outgoing.send(piece).map_err(|_| LinkError::Closed))
    }

    fn read(&mut self, out: &mut [u8], deadline: Instant) -> Result<usize, LinkError> {
        while self.rest.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.incoming.recv_timeout(left) {
                Ok(piece) => self.rest = piece,
                Err(RecvTimeoutError::Timeout) => return Err(LinkError::TimedOut),
                Err(RecvTimeoutError::Disconnected) => return Err(LinkError::Closed),
            }
        }
        let count = out.len().min(self.rest.len());
        out[..count].copy_from_slice(&self.rest[..count]);
        self.rest.drain(..count);
        Ok(count)
    }
}
