//! A way to another machine: bytes in order, or an end.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Instant;

/// Bytes to and from one peer.
pub trait Link: Send {
    /// Sends all of `bytes`.
    fn write(&mut self, bytes: &[u8]) -> Result<(), LinkError>;
    /// Fills all of `out`; after an error the link is of no more use.
    fn read(&mut self, out: &mut [u8], deadline: Instant) -> Result<(), LinkError>;
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

/// What becomes of each piece that is written: tests lose, repeat, hold back or damage them here.
pub type Weather = Box<dyn FnMut(Vec<u8>) -> Vec<Vec<u8>> + Send>;

/// One end of a link inside this process.
pub struct ChannelLink {
    outgoing: Sender<Vec<u8>>,
    incoming: Receiver<Vec<u8>>,
    /// What has come and was not read.
    rest: Vec<u8>,
    weather: Weather,
}

/// Both ends of a link inside this process, with the weather on the way from each.
pub fn channel_pair(weather: [Weather; 2]) -> (ChannelLink, ChannelLink) {
    let ((here, to_here), (there, to_there)) = (channel(), channel());
    let [from_here, from_there] = weather;
    let end = |outgoing, incoming, weather| ChannelLink { outgoing, incoming, rest: Vec::new(), weather };
    (end(there, to_here, from_here), end(here, to_there, from_there))
}

/// Every piece arrives once, in order and as it was.
pub fn fair() -> Weather {
    Box::new(|piece| vec![piece])
}

impl Link for ChannelLink {
    fn write(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        let pieces = (self.weather)(bytes.to_vec());
        pieces.into_iter().try_for_each(|piece| self.outgoing.send(piece).map_err(|_| LinkError::Closed))
    }

    fn read(&mut self, out: &mut [u8], deadline: Instant) -> Result<(), LinkError> {
        while self.rest.len() < out.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.incoming.recv_timeout(left) {
                Ok(piece) => self.rest.extend_from_slice(&piece),
                Err(RecvTimeoutError::Timeout) => return Err(LinkError::TimedOut),
                Err(RecvTimeoutError::Disconnected) => return Err(LinkError::Closed),
            }
        }
        out.copy_from_slice(&self.rest[..out.len()]);
        self.rest.drain(..out.len());
        Ok(())
    }
}
